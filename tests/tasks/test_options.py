import pytest

from tasks.options import Option


def _option(kind, may_be_none=False):
    return Option("size", kind, None, "Help.", may_be_none)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("count", 20),
        ("positive", 0.3),
        ("non_negative", 0.0),
        ("rate", 0.5),
        ("flag", False),
    ],
)
def test_values_of_a_kind_are_accepted(kind, value):
    assert _option(kind).check(value) is None


def test_none_is_a_value_where_it_may_be():
    _option("count", may_be_none=True).check(None)
    with pytest.raises(TypeError, match="size must be an integer, found None"):
        _option("count").check(None)


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        ("count", 2.5, TypeError, "size must be an integer, found 2.5"),
        ("count", 0, ValueError, "size must be at least 1, found 0"),
        ("positive", "much", TypeError, "size must be a number, found 'much'"),
        ("positive", float("nan"), ValueError, "a finite number greater than 0, found"),
        ("non_negative", -1, ValueError, "size must be a finite number of at least 0"),
        ("rate", 1.0, ValueError, "size must be at least 0 and below 1, found 1.0"),
        ("flag", 1, TypeError, "size must be True or False, found 1"),
    ],
)
def test_other_values_are_errors(kind, value, error, message):
    with pytest.raises(error, match=message):
        _option(kind).check(value)


def test_a_choice_is_one_of_its_values():
    option = Option("network", "choice", "small", "Help.", choices=("small", "large"))
    option.check("small")
    with pytest.raises(
        ValueError, match="network must be one of 'small', 'large', found 'big'"
    ):
        option.check("big")
