"""Which module registered what: that one may register it anew, no other.

In a notebook a cell runs again with what was changed in it, and `importlib.reload` runs
a module again.
"""

from __future__ import annotations

import sys
from typing import Any

# By the kind of a thing and its name.
_MODULES: dict[tuple[str, str], str] = {}
_asked = 0


def num_asked() -> int:
    """Returns how often something was to be registered in this process."""
    return _asked


def may_be(kind: str, name: str, new: Any, old: Any) -> bool:
    """Returns whether a name may be registered, by whom the caller was called.

    Args:
      kind: What is registered, such as "task".
      name: Its name.
      new: What is to have the name.
      old: What has the name; `None` if nothing has.
    """
    global _asked
    _asked += 1
    module = str(sys._getframe(2).f_globals.get("__name__"))
    if old is None:
        _MODULES[kind, name] = module
    return old in (None, new) or _MODULES.get((kind, name)) == module
