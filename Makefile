# `make demo` trains and compares; `make test` runs the tests. Both set up a
# virtual environment in .venv first, which takes about two minutes once: with the
# Python that made an environment there before, or with the first of these that the
# machine has, or with yours: make PYTHON=python3.13 demo

VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHONS := 3.11 3.12 3.13
# Elsewhere TFF comes without its worker, and Python 3.11 lacks a wheel of jaxlib.
ifneq ($(shell uname -sm),Linux x86_64)
PYTHONS := 3.12 3.13
ELSEWHERE := yes
endif
PYTHON ?= $(shell test -x $(BIN)/python && echo $(BIN)/python || tools/find_python.sh $(PYTHONS))
# A name such as python3.13 may be known to pyenv alone.
override PYTHON := $(or $(shell tools/find_python.sh $(PYTHON)),$(PYTHON))
DEMO_DIR ?= results/demo
PYTEST_ARGS ?=
# Files that are named run in one process: others would import TensorFlow in vain.
PROCESSORS = from tff_drift import system; print(system.processors())
TEST_PROCESSES ?= $(if $(findstring .py,$(PYTEST_ARGS)),0,$$($(BIN)/python -c '$(PROCESSORS)'))
# The site has an environment of its own, small and without TensorFlow.
DOCS_VENV ?= .venv-docs
DOCS_BIN := $(DOCS_VENV)/bin
DOCS_PYTHON ?= $(shell tools/find_python.sh 3.11 3.12 3.13)

ONE_OF := Python 3.11 to 3.13; name yours: make PYTHON=/path/to/python3.11
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
SUPPORTED = import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
LOCK = import sys; print("requirements-modern.txt" if sys.version_info >= (3, 12) else "requirements.txt")

.PHONY: help setup demo test conformance smoke elsewhere wheels soak fuzz mutations lint types wheel docs site documents notebooks figures quotes papers archive lock clean

help:
	@echo "make demo   train and compare five algorithms on real digits (results/demo)"
	@echo "make test   run the tests (PYTEST_ARGS=tests/test_readme.py runs a file's)"
	@echo "make conformance  test every method in every mode and context"
	@echo "make smoke  run a test of nearly every file, in a minute"
	@echo "make elsewhere  the same without what Linux alone has, as on macOS"
	@echo "make soak   kill, starve and damage hundreds of runs, for hours"
	@echo "make fuzz   compare random models and cohorts in every mode, for an hour"
	@echo "make mutations  break the methods on purpose: the tests must notice"
	@echo "make lint   check style, formatting and what imports what"
	@echo "make types  check the type hints"
	@echo "make wheel  build the wheel of the library into dist/"
	@echo "make docs   build the site into build/docs, and test what documents say"
	@echo "make notebooks  run the tutorials and keep their outputs"
	@echo "make figures  make the figures and presets' tables from the data beside them"
	@echo "make papers  write the pages of the papers from their claims"
	@echo "make quotes  write the numbers that documents quote from results anew"
	@echo "make archive  pack the committed results for a release into dist/"
	@echo "make lock   pin the environments anew (needs uv)"
	@echo "make wheels  look the pinned wheels of every platform up (needs uv)"

# Whether the environment is there, whole, and of the Python asked for.
setup:
	@test -n "$(PYTHON)" || { echo "error: none of Python $(PYTHONS) was found. tff_drift needs $(ONE_OF)" >&2; exit 2; }
	@$(PYTHON) -c '' 2>/dev/null || { echo "error: $(PYTHON) does not run. tff_drift needs $(ONE_OF)" >&2; exit 2; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "error: $(PYTHON) is $$($(PYTHON) --version). tff_drift needs $(ONE_OF)" >&2; exit 2; }
	@if test -x $(BIN)/python && test "$$($(BIN)/python -c '$(VERSION)')" != "$$($(PYTHON) -c '$(VERSION)')"; then \
		echo "$(VENV) is of $$($(BIN)/python --version): making it anew"; rm -r $(VENV); fi
	@$(MAKE) --silent --no-print-directory PYTHON=$(PYTHON) VENV=$(VENV) $(INSTALLED)
	@echo "$$($(BIN)/python --version) in $(VENV), as $$($(BIN)/python -c '$(LOCK)') pins it"

$(INSTALLED): requirements.txt requirements-modern.txt $(wildcard tff_drift/install/*.txt) pyproject.toml
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (about two minutes, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(if $(ELSEWHERE),sed '/^-r /d' $$($(BIN)/python -c '$(LOCK)') >$(VENV)/requirements.txt)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python --require-hashes -r $(if $(ELSEWHERE),$(VENV)/requirements.txt,$$($(BIN)/python -c '$(LOCK)'))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(if $(ELSEWHERE),$(BIN)/python -m tff_drift.install)
	@touch $@

demo: setup
	@$(BIN)/tff-drift compare --task=digits --algorithms=fed_avg,fed_adam,scaffold,fed_dyn,adabest --output_dir=$(DEMO_DIR)

# Neighbours share processes and programs that take long to build: each processor gets
# them in one piece, and takes from the others when it is done.
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist=worksteal

# Tiers of tests are markers, see pyproject.toml. The first, and the smoke test, run
# graphs as they were traced; the other tiers, and the programs that tests start,
# optimize them as users do.
TEST_OPTIONS ?= --no-grappler
test: setup
	@$(PYTEST) --durations=10 $(TEST_OPTIONS) $(PYTEST_ARGS)

conformance: setup
	@$(PYTEST) --durations=10 -m conformance $(PYTEST_ARGS)

smoke: setup
	@$(PYTEST) -n auto -q --smoke $(TEST_OPTIONS) $(PYTEST_ARGS)

# A stand-in for macOS, see tests/elsewhere.py.
elsewhere: setup
	@TFF_DRIFT_ELSEWHERE=1 $(PYTEST) -n auto -q --smoke $(PYTEST_ARGS)

# Results are added to the file as they come, and a soak that was stopped goes on from it.
SOAK_RESULTS ?= tests/soak/results.jsonl
soak: setup
	@$(BIN)/python -m tests.soak.store_kills $(SOAK_RESULTS)
	@$(BIN)/python -m tests.soak.kills $(SOAK_RESULTS)
	@$(BIN)/python -m tests.soak.interrupts $(SOAK_RESULTS)
	@$(BIN)/python -m tests.soak.faults $(SOAK_RESULTS)
	@if $(BIN)/python -c "import ray" 2>/dev/null; then \
	  $(BIN)/python -m tests.soak.ray_kills $(SOAK_RESULTS); fi
	@TFF_DRIFT_SOAK=$(SOAK_RESULTS) $(BIN)/python -m pytest -s -m "not documents" tests/soak tests/reliability tests/execution/on_ray $(PYTEST_ARGS)
	@$(BIN)/python -m tests.soak.report

# What is found is told at the end; another start goes on with other cases.
FUZZ_RESULTS ?= results/fuzz.jsonl
FUZZ_SECONDS ?= 3600
fuzz: setup
	@mkdir -p $(dir $(FUZZ_RESULTS))
	@$(BIN)/python -m tests.soak.fuzz $(FUZZ_RESULTS) --seconds=$(FUZZ_SECONDS)

# MUTATIONS=--part=K/N runs one of N parts.
mutations: setup
	@$(BIN)/python -m tests.soak.mutations.check $(MUTATIONS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

types: setup
	@$(BIN)/mypy

wheel: setup
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

docs: site documents

documents: setup
	@$(BIN)/python -m pytest -q -m documents $(PYTEST_ARGS)

site: $(DOCS_VENV)/.installed
	@$(DOCS_BIN)/sphinx-build -q -W --keep-going -c docs/site -b html . build/docs
	@echo "build/docs/index.html"

# TUTORIALS="docs/tutorials/drift.py" runs one; NOTEBOOKS=--check writes nothing.
TUTORIALS ?= $(sort $(wildcard docs/tutorials/*.py))
notebooks: setup
	@$(BIN)/python docs/site/notebooks.py $(NOTEBOOKS) $(TUTORIALS)

figures: setup
	@$(BIN)/python docs/site/figures.py

# What a release has beside the wheel: all results, for those without a checkout.
archive:
	@mkdir -p dist
	@git archive --format=tar.gz --prefix=tff_drift-results/ \
		--output=dist/tff_drift-results.tar.gz HEAD experiments/results experiments/papers
	@echo "dist/tff_drift-results.tar.gz"

quotes: setup
	@$(BIN)/python docs/site/quotes.py --write

# Of the claims in experiments/papers and of the presets.
papers: setup
	@$(BIN)/python docs/site/paper_pages.py
	@$(BIN)/python docs/site/presets_table.py

lock:
	@tools/lock.sh

wheels:
	@tools/lock.sh --check

$(DOCS_VENV)/.installed: docs/requirements.txt
	@test -n "$(DOCS_PYTHON)" || { echo "error: the site needs Python 3.11 to 3.13" >&2; exit 2; }
	@$(DOCS_PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r docs/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) $(DOCS_VENV) build dist *.egg-info
