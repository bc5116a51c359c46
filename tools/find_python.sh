#!/bin/sh
# usage: tools/find_python.sh 3.11 python3.12 /path/to/python ...
# Prints the first of these Pythons that runs here, by name or from pyenv.
for wanted in "$@"; do
  version=${wanted#python}
  for python in "$wanted" "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    if "$python" -c "import venv, ensurepip" 2>/dev/null; then
      command -v "$python"
      exit
    fi
  done
done
exit 1
