"""`python -m experiments` is the same as the command `tff-drift`."""

import sys

from experiments.main import run

sys.exit(run())
