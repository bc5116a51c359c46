#!/usr/bin/env bash
# Writes requirements.txt (Python 3.11) and requirements-modern.txt (3.12 and
# 3.13) from pyproject.toml, and docs/requirements.txt from docs/requirements.in.
# `tools/lock.sh --check` writes nothing: it looks up whether all that is pinned in
# requirements-modern.txt has a wheel with its hash for each platform.
# Needs uv and the package index.
set -euo pipefail
cd "$(dirname "$0")/.."
find_python=$PWD/tools/find_python.sh

intel="sys_platform == 'linux' and platform_machine == 'x86_64'"
others="\"sys_platform == 'linux' and platform_machine == 'aarch64'\", \"sys_platform == 'darwin' and platform_machine == 'arm64'\""

resolve() { # the Pythons, platforms, a folder
  # What the extras need does not bind the environment of a checkout.
  sed -e "s/^requires-python = .*/requires-python = \"$1\"/" \
    -e "s/^environments = .*/environments = [\"$intel\"$2]/" \
    -e '/^\[project.optional-dependencies\]/,/^$/d' pyproject.toml >"$3/pyproject.toml"
  cp README.md LICENSE "$3"
  (cd "$3" && uv lock --quiet)
}

lock() { # the Pythons, the file, TFF's own packages, a Python, platforms, their name
  local folder
  local -x UV_PYTHON=$4
  folder=$(mktemp -d)
  resolve "$1" "$5" "$folder"
  {
    echo "# The whole environment of a checkout for Python $1 on $6, pinned"
    echo "# and hashed. To be installed without dependencies and, because TFF declares"
    echo "# Python below 3.12, without a look at what Python a package asks for:"
    echo "#   pip install --no-deps --ignore-requires-python --require-hashes -r $2"
    echo "# Made from pyproject.toml by tools/lock.sh."
    echo "-r tff_drift/install/$3"
    uv export --quiet --project "$folder" --all-groups --no-emit-project \
      --no-annotate --no-header --format requirements-txt
  } >"$2"
  rm -r "$folder"
}

check_wheels() {
  local folder
  local -x UV_PYTHON
  UV_PYTHON=$("$find_python" 3.13 3.12)
  folder=$(mktemp -d)
  resolve ">=3.12,<3.14" ", $others" "$folder"
  uv run --quiet --no-project --with packaging python tools/check_wheels.py \
    "$folder/uv.lock" requirements-modern.txt 3.12 3.13
  rm -r "$folder"
}

if [ "${1:-}" = --check ]; then
  check_wheels
  exit
fi

lock ">=3.11,<3.12" requirements.txt tff-pinned.txt "$("$find_python" 3.11)" \
  "" "Linux x86-64"
lock ">=3.12,<3.14" requirements-modern.txt tff-modern.txt "$("$find_python" 3.13 3.12)" \
  ", $others" "Linux and macOS"
check_wheels

# The site is not imported together with TensorFlow: no pins of the project bind it.
date=$(sed -n 's/^exclude-newer = "\(.*\)"/\1/p' pyproject.toml)
{
  echo "# The environment of \`make docs\` for Python 3.11 to 3.13, pinned and hashed."
  echo "# Made from docs/requirements.in by tools/lock.sh."
  uv pip compile --quiet --no-config --no-annotate --no-header --generate-hashes \
    --python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
    --exclude-newer "$date" docs/requirements.in
} >docs/requirements.txt
