"""Takes away what Linux alone has from a Python that the tests start elsewhere."""

import importlib.util
import pathlib

path = pathlib.Path(__file__).resolve().parents[1] / "elsewhere.py"
spec = importlib.util.spec_from_file_location("elsewhere", path)
elsewhere = importlib.util.module_from_spec(spec)
spec.loader.exec_module(elsewhere)
elsewhere.take_linux_away()
