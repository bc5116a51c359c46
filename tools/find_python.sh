#!/bin/sh
# usage: tools/find_python.sh 3.11 3.12 ...
# Prints the first Python of these versions that runs here, by name or from pyenv.
for version in "$@"; do
  for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    if "$python" -c "import venv, ensurepip" 2>/dev/null; then
      command -v "$python"
      exit
    fi
  done
done
exit 1
