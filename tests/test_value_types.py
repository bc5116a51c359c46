"""Options and the types of their values: what is read, accepted and refused."""

import pytest

from tff_drift import value_types


def option(kind, may_be_none=False):
    choices = ("a", "b") if kind == "choice" else ()
    return value_types.Option("size", kind, "Help.", None, may_be_none, choices)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("text", "a b", "a b"),
        ("path", "a b/c", "a b/c"),
        ("flag", "True", True),
        ("flag", "0", False),
        ("count", "20", 20),
        ("whole", "0", 0),
        ("seed", "4294967295", 4294967295),
        ("number", "-2.5", -2.5),
        ("number or auto", "auto", "auto"),
        ("number or auto", "1e-2", 0.01),
        ("positive", "1e-2", 0.01),
        ("non_negative", "0", 0.0),
        ("rate", "0.5", 0.5),
        ("fraction", "1", 1.0),
        ("probability", "0", 0.0),
    ],
)
def test_a_text_is_read_as_a_value_of_the_type(kind, text, value):
    found = value_types.VALUE_TYPES[kind].read(text)
    assert found == value
    assert type(found) is type(value)
    option(kind).check(found)


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        ("text", 3, TypeError, "size must be a string, found 3"),
        ("path", 3, TypeError, "size must be a string, found 3"),
        ("path", "", ValueError, "size must be a path, found ''. Give one that is not"),
        ("flag", 1, TypeError, "size must be True or False, found 1"),
        ("count", 0, ValueError, "size must be at least 1, found 0"),
        ("count", 2.5, TypeError, "size must be an integer, found 2.5"),
        ("whole", -1, ValueError, "size must be at least 0, found -1"),
        ("seed", 2**32, ValueError, "size must be at most 4294967295, found"),
        ("number", float("inf"), ValueError, "size must be a finite number, found inf"),
        ("number or auto", "fast", TypeError, "size must be a number, found 'fast'"),
        ("positive", 0, ValueError, "a finite number greater than 0, found 0"),
        ("positive", "much", TypeError, "size must be a number, found 'much'"),
        ("positive", float("nan"), ValueError, "a finite number greater than 0, found"),
        ("non_negative", -1, ValueError, "size must be a finite number of at least 0"),
        ("rate", 1.0, ValueError, "a number of at least 0, below 1, found 1.0"),
        ("rate", 1 - 1e-8, ValueError, "below 1, found 0.99999999, in float32 1"),
        (
            "fraction",
            0,
            ValueError,
            "size must be a number above 0, at most 1, found 0",
        ),
        ("fraction", 1.5, ValueError, "a number above 0, at most 1, found 1.5"),
        (
            "probability",
            -0.1,
            ValueError,
            "size must be a number from 0 to 1, found -0.1",
        ),
        ("choice", "c", ValueError, "size must be one of 'a', 'b', found 'c'"),
        ("count", None, TypeError, "size must be an integer, found None"),
    ],
)
def test_other_values_are_errors(kind, value, error, message):
    with pytest.raises(error, match=message):
        option(kind).check(value)


def test_none_is_a_value_where_it_may_be():
    option("count", may_be_none=True).check(None)


def test_a_message_may_call_an_option_otherwise():
    with pytest.raises(ValueError, match="--size must be at least 1, found 0"):
        option("count").check(0, "--size")


def test_a_choice_is_one_of_its_values():
    option("choice").check("a")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (20.0, "20"),
        (1e-7, "1e-07"),
        (0.12345678, "0.12345678"),
        (0.9999999, "0.9999999"),
        (1234567.0, "1234567.0"),
        ((0.5, 0.1234567), "0.5,0.1234567"),
        (True, "true"),
        (None, "none"),
    ],
)
def test_a_text_spells_one_value_alone(value, text):
    assert value_types.show(value) == text
