import doctest

from tff_drift import client_states


def test_the_examples_in_the_documentation_run():
    results = doctest.testmod(client_states)
    assert results.attempted > 10
    assert results.failed == 0
