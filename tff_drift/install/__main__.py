"""`python -m tff_drift.install` is the same as `tff-drift install-tff`."""

import sys

from tff_drift import install

try:
    install.install_tff()
except RuntimeError as error:
    sys.exit(f"error: {error}")
