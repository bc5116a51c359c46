"""`python -m experiments` is the same as the command `tff-drift`."""

from experiments.main import run
from tff_drift import programs

programs.end(run())
