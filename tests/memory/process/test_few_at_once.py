"""Turns to compute: first come, first served, and nobody is stuck behind one that does not end."""

from __future__ import annotations

import threading

import pytest

from agentkit_memory.process.few_at_once import FewAtOnce
from tests.waiting import LONG, until


def waits(few: FewAtOnce, count: int) -> bool:
    """Wait until so many threads wait for a turn."""
    return bool(until(lambda: few.waiting == count))


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
        each.join(LONG)
    assert served == [*range(20)]


class Moving(FewAtOnce):
    """Turns of which another one has been given up whenever somebody looks."""

    looks = 0

    @property
    def _given_up(self) -> int:
        self.looks += 1
        return self.looks

    @_given_up.setter
    def _given_up(self, count: int) -> None: ...


def test_who_waits_long_goes_on_waiting_while_turns_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.process.few_at_once._MAX_WAIT", 0.01)
    few = Moving(1)
    held: list[bool] = []

    def work() -> None:
        with few.turn() as turn:
            held.append(turn.held)

    with few.turn():
        waiting = threading.Thread(target=work)
        waiting.start()
        until(lambda: few.looks > 20)  # so often it has waited as long as nobody is to be stuck
        assert held == []
    waiting.join(LONG)
    assert held == [True]


def test_nobody_is_stuck_behind_a_turn_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.process.few_at_once._MAX_WAIT", 0.01)
    few = FewAtOnce(1)
    with few.turn():
        beside = threading.Thread(target=few.turn().__enter__)
        beside.start()
        beside.join(LONG)
        assert not beside.is_alive()
    with few.turn() as turn:
        assert turn.held  # the one who went beside gave nothing back


def test_a_turn_is_given_up_while_its_thread_waits_for_something_else() -> None:
    few = FewAtOnce(1)
    with few.turn() as mine:
        with mine.away(), few.turn() as other:
            assert other.held and not mine.held
        assert mine.held
