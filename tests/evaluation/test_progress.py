import io

import pytest

from tokencover.evaluation.progress import Progress, format_duration


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_now_and_then() -> None:
    log, clock = io.StringIO(), Clock()
    progress = Progress(log, 4, clock)
    progress.begin("mob 64, color")
    for answered in range(1, 41):
        clock.now += 1
        progress.advance(answered, 40)
    lines = log.getvalue().splitlines()
    assert lines == [
        "0 of 4 done, 10 of 40 examples, 2:30 left: mob 64, color",
        "0 of 4 done, 20 of 40 examples, 2:20 left: mob 64, color",
        "0 of 4 done, 30 of 40 examples, 2:10 left: mob 64, color",
        "0 of 4 done, 40 of 40 examples, 2:00 left: mob 64, color",
    ]


def test_resumed_examples_do_not_count_as_fast() -> None:
    log, clock = io.StringIO(), Clock()
    progress = Progress(log, 1, clock)
    progress.begin("data")
    progress.resume(80, 100)
    clock.now += 10
    progress.advance(90, 100)
    assert log.getvalue() == "0 of 1 done, 90 of 100 examples, 0:10 left: data\n"


def test_nothing_is_known_before_something_is_done() -> None:
    log, clock = io.StringIO(), Clock()
    progress = Progress(log, 2, clock)
    clock.now += 11
    progress.begin("first")
    assert log.getvalue() == "0 of 2 done, time left not known yet: first\n"


def test_the_end_is_always_told() -> None:
    log = io.StringIO()
    progress = Progress(log, 2, Clock())
    progress.begin("first")
    progress.finish()
    assert log.getvalue() == ""
    progress.begin("second")
    progress.finish()
    assert log.getvalue() == "2 of 2 done, 0:00 left: second\n"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
