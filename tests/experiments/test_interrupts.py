import signal

import pytest

from experiments.interrupts import SoftInterrupt


def press():
    signal.raise_signal(signal.SIGINT)


def test_the_first_ctrl_c_waits_for_the_next_round(capfd):
    asked = []
    interrupt = SoftInterrupt()
    sampling = interrupt.before_each(lambda number: asked.append(number) or ["a"])
    with interrupt:
        assert sampling(0) == ["a"]
        press()
        reached = True
        with pytest.raises(KeyboardInterrupt):
            sampling(1)
    assert reached
    assert asked == [0]
    assert "Ctrl-C again stops at once" in capfd.readouterr().err


def test_the_second_ctrl_c_is_the_usual_one():
    with SoftInterrupt():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_the_usual_handler_comes_back():
    with SoftInterrupt():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SoftInterrupt() as interrupt:
            press()
            interrupt.check()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
