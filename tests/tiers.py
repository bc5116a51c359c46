"""Which of many cases are in the first tier of tests."""

import pytest


def first(chosen, cases, ids=None):
    """Returns the cases of a `parametrize`, all but the chosen ones conformance's.

    Args:
      chosen: The positions of those in the first tier, or their names.
      cases: The cases: by name, or in a list.
      ids: The names of those in a list; pytest's own by default.
    """
    if isinstance(cases, dict):
        names, cases = list(cases), list(cases.values())
    else:
        cases = list(cases)
        named = all(isinstance(case, str) for case in cases)
        names = list(ids or (cases if named else [None] * len(cases)))
    unknown = {each for each in chosen if isinstance(each, str)} - set(names)
    assert not unknown, f"there are no cases {unknown}"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=()
            if name in chosen or position in chosen
            else pytest.mark.conformance,
        )
        for position, (name, case) in enumerate(zip(names, cases, strict=True))
    ]
