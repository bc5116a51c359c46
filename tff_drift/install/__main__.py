"""`python -m tff_drift.install` is the same as `tff-drift install-tff`."""

import argparse
import sys

from tff_drift import install

parser = argparse.ArgumentParser(prog="python -m tff_drift.install")
parser.add_argument(
    "--worker", choices=["true", "false"], help="whether TFF's worker is installed, too"
)
wanted = parser.parse_args().worker
try:
    install.install_tff(None if wanted is None else wanted == "true")
except RuntimeError as error:
    sys.exit(f"error: {error}")
