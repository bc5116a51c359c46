import pytest

from tasks import definitions


def _option(kind, may_be_none=False):
    return definitions.Option("size", kind, None, "Help.", may_be_none)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("count", "20", 20),
        ("positive", "0.3", 0.3),
        ("positive", "1e-2", 0.01),
        ("non_negative", "0", 0.0),
        ("rate", "0.5", 0.5),
        ("flag", "True", True),
        ("flag", " false", False),
    ],
)
def test_parses_what_a_command_line_gives(kind, text, value):
    parsed = _option(kind).parse(text)

    assert parsed == value
    assert type(parsed) is type(value)


def test_none_is_a_value_where_it_may_be():
    assert _option("count", may_be_none=True).parse("none") is None
    _option("count", may_be_none=True).check(None)
    with pytest.raises(ValueError, match="size must be an integer, found 'none'"):
        _option("count").parse("none")
    with pytest.raises(TypeError, match="size must be an integer, found None"):
        _option("count").check(None)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("count", "2.5", "size must be an integer, found '2.5'"),
        ("count", "0", "size must be at least 1, found 0"),
        ("positive", "much", "size must be a number, found 'much'"),
        ("positive", "nan", "size must be a finite number greater than 0, found nan"),
        ("non_negative", "-1", "size must be a finite number of at least 0"),
        ("rate", "1", "size must be at least 0 and below 1, found 1.0"),
        ("flag", "yes", "size must be true or false, found 'yes'"),
    ],
)
def test_raises_on_text_that_spells_no_value(kind, text, message):
    with pytest.raises(ValueError, match=message):
        _option(kind).parse(text)


def test_raises_on_a_flag_that_is_no_boolean():
    with pytest.raises(TypeError, match="size must be True or False, found 1"):
        _option("flag").check(1)


def test_a_choice_is_one_of_its_values():
    option = definitions.Option(
        "network", "choice", "small", "Help.", choices=("small", "large")
    )

    assert option.parse(" Large") == "large"
    option.check("small")
    for refuse in (lambda: option.parse("big"), lambda: option.check("big")):
        with pytest.raises(
            ValueError, match="network must be one of 'small', 'large', found 'big'"
        ):
            refuse()
