"""Turns to compute: first come, first served, and nobody is stuck behind one that does not end."""

from __future__ import annotations

import threading
import time

import pytest

from agentkit_memory.process.few_at_once import FewAtOnce

GENEROUS = 20.0


def waits(few: FewAtOnce, count: int) -> bool:
    """Return whether so many threads wait for a turn, before long."""
    until = time.monotonic() + GENEROUS
    while len(few._waiting) != count and time.monotonic() < until:
        time.sleep(0.001)
    return len(few._waiting) == count


def test_turns_are_given_in_the_order_they_were_asked_for() -> None:
    few = FewAtOnce(1)
    served: list[int] = []

    def work(number: int) -> None:
        with few.turn():
            served.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    with few.turn():
        for number, each in enumerate(threads, 1):
            each.start()
            assert waits(few, number)
        assert served == []
    for each in threads:
        each.join(GENEROUS)
    assert served == [*range(20)]


def test_who_waits_long_goes_on_waiting_while_turns_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.process.few_at_once._MAX_WAIT", 0.5)
    few = FewAtOnce(2)
    beside = threading.Event()
    moving = few.turn()
    moving.__enter__()

    def work() -> None:
        with few.turn() as turn:
            if not turn._held:
                beside.set()

    with few.turn():
        waiting = threading.Thread(target=work)
        waiting.start()
        for _ in range(60):  # longer than the limit; each turn goes to another thread that waits as long
            few._given_up += 1
            time.sleep(0.02)
        assert waiting.is_alive() and not beside.is_set()
    moving.__exit__(None, None, None)
    waiting.join(GENEROUS)
    assert not beside.is_set()


def test_nobody_is_stuck_behind_a_turn_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.process.few_at_once._MAX_WAIT", 0.01)
    few = FewAtOnce(1)
    with few.turn():
        beside = threading.Thread(target=few.turn().__enter__)
        beside.start()
        beside.join(GENEROUS)
        assert not beside.is_alive()
    with few.turn() as turn:
        assert turn._held  # the one who went beside gave nothing back


def test_a_turn_is_given_up_while_its_thread_waits_for_something_else() -> None:
    few = FewAtOnce(1)
    with few.turn() as mine:
        with mine.away(), few.turn() as other:
            assert other._held and not mine._held
        assert mine._held
