"""Test the messages and the progress display of the command."""

import io

import pytest
from needs import needs

from vicinal._words import duration
from vicinal.cli import console as module
from vicinal.cli.console import Console


class Clock:
    """A clock that the test advances."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    return clock


def test_a_log_gets_a_line_now_and_then_with_the_time_left(clock, capsys):
    console = Console()
    for done in range(11):
        clock.now = 3.0 * done
        console.progress(done, 10, f"step {done}")
    assert capsys.readouterr().err.splitlines() == [
        "[ 2/10] step 2; about 24 s left",
        "[ 4/10] step 4; about 18 s left",
        "[ 6/10] step 6; about 12 s left",
        "[ 8/10] step 8; about 6 s left",
        "[10/10] step 10",
    ]


def test_quick_work_says_nothing_and_other_work_begins_anew(clock, capsys):
    console = Console()
    for done in range(4):
        clock.now += 1.0
        console.progress(done, 3, "quick")
    assert capsys.readouterr().err == ""
    clock.now = 100.0
    console.progress(0, 500, "pass 0", at_most=True)
    clock.now = 110.0
    console.progress(5, 500, "pass 5", at_most=True)
    assert "[  5/500] pass 5; at most 16 min left" in capsys.readouterr().err
    clock.now = 120.0
    console.progress(6, 500, "pass 6; the text tells the time", estimate=False)
    assert capsys.readouterr().err.endswith("[  6/500] pass 6; the text tells the time\n")


def test_quiet_is_quiet(clock, capsys):
    console = Console(quiet=True)
    clock.now = 100.0
    console.progress(1, 2, "work")
    console.say("words")
    console.warn("odd")
    assert capsys.readouterr().err == ""
    console.fail("wrong")
    assert capsys.readouterr().err == "vicinal: error: wrong\n"


class Ticks:
    """An event that a watch waits for: it ends after some ticks, before each of which the clock advances."""

    def __init__(self, clock, seconds):
        self._clock, self._seconds = clock, list(seconds)

    def wait(self, timeout):
        if not self._seconds:
            return True
        self._clock.now += self._seconds.pop(0)
        return False

    def is_set(self):
        return False


def test_long_silence_shows_a_sign_of_life_every_five_seconds(clock, capsys):
    console = Console()
    console.doing("fitting nca")
    console._ended = Ticks(clock, [3.0, 3.0, 3.0, 3.0])
    console._show_life()
    assert capsys.readouterr().err.splitlines() == ["[...] fitting nca (6 s)", "[...] fitting nca (12 s)"]
    console.progress(2, 7, "fold 3")
    console._ended = Ticks(clock, [6.0])
    console._show_life()
    assert capsys.readouterr().err == "[2/7] fold 3\n"  # with the count of the steps
    console.say("done")
    console._ended = Ticks(clock, [4.0])
    console._show_life()
    assert capsys.readouterr().err == "done\n"


def test_context_of_a_console_ends_its_watch_and_quiet_has_none():
    with Console() as console:
        assert console._watch.is_alive()
    assert not console._watch.is_alive()
    with Console(quiet=True) as console:
        assert console._watch is None


def test_a_terminal_gets_a_bar_that_leaves_no_trace(clock, monkeypatch):
    needs("tqdm")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(module.sys, "stderr", terminal)
    console = Console()
    for done in range(4):
        clock.now += 10.0
        console.progress(done, 3, f"fold {done}")
        if done == 1:
            console.say("first results")
    shown = terminal.getvalue()
    assert "fold 1; about 20 s left" in shown
    assert "2/3" in shown
    assert "first results\n" in shown
    assert shown.split("\r")[-1].strip() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.01, "1 s"), (40, "40 s"), (89, "89 s"), (95, "2 min"), (3000, "50 min"), (9000, "2.5 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
