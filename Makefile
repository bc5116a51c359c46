# `make demo` trains and compares; `make test` runs the tests. Both set up a
# virtual environment in .venv first, which takes about two minutes once.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_DIR ?= results/demo
PYTEST_ARGS ?=

.PHONY: help setup demo test lint types wheel clean

help:
	@echo "make demo   train and compare five algorithms on real digits (results/demo)"
	@echo "make test   run the tests"
	@echo "make lint   check style and formatting"
	@echo "make types  check the type hints"
	@echo "make wheel  build the wheel of the library into dist/"

setup: $(INSTALLED)

$(INSTALLED): requirements.txt pyproject.toml experiments/pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) was not found. tff_drift needs Python 3.9, 3.10 or 3.11; install one, or name yours: make PYTHON=/path/to/python3.10" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' || { echo "error: $(PYTHON) is $$($(PYTHON) --version). tff_drift needs Python 3.9, 3.10 or 3.11, because TensorFlow Federated 0.87 does; name one: make PYTHON=python3.11" >&2; exit 2; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (about two minutes, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e experiments
	@touch $@

demo: setup
	@$(BIN)/tff-drift compare --task=digits --algorithms=fed_avg,fed_adam,scaffold,fed_dyn,adabest --output_dir=$(DEMO_DIR)

test: setup
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

wheel: setup
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info experiments/*.egg-info
