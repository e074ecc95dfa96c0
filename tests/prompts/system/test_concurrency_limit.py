"""ConcurrencyLimit: permits in the order of the requests, and no deadlock if a permit is not returned."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from agentkit_prompts.system.concurrency_limit import ConcurrencyLimit
from tests.waiting import LONG, until


def waits(limit: ConcurrencyLimit, count: int) -> bool:
    """Wait until `count` threads wait for a permit."""
    return bool(until(lambda: limit.waiting == count))


def test_threads_get_permits_in_the_order_of_their_requests() -> None:
    limit = ConcurrencyLimit(1)
    served: list[int] = []

    def work(number: int) -> None:
        with limit.hold():
            served.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    with limit.hold():
        for number, each in enumerate(threads, 1):
            each.start()
            assert waits(limit, number)
        assert served == []
    for each in threads:
        each.join(LONG)
    assert served == [*range(20)]


class Moving(ConcurrencyLimit):
    """Limit whose number of returned permits increases with each read."""

    looks = 0

    @property
    def _returned(self) -> int:
        self.looks += 1
        return self.looks

    @_returned.setter
    def _returned(self, count: int) -> None: ...


def test_a_thread_waits_while_other_permits_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_prompts.system.concurrency_limit._PATIENCE", 0.01)
    limit = Moving(1)
    held: list[bool] = []

    def work() -> None:
        with limit.hold() as permit:
            held.append(permit.is_held)

    with limit.hold():
        waiting = threading.Thread(target=work)
        waiting.start()
        until(lambda: limit.looks > 20)  # The thread has waited longer than the patience many times.
        assert held == []
    waiting.join(LONG)
    assert held == [True]


def test_a_permit_that_is_not_returned_blocks_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_prompts.system.concurrency_limit._PATIENCE", 0.01)
    limit = ConcurrencyLimit(1)
    with limit.hold():
        beside = threading.Thread(target=limit.hold().__enter__)
        beside.start()
        beside.join(LONG)
        assert not beside.is_alive()
    with limit.hold() as permit:
        assert permit.is_held  # The thread without a permit has returned none.


def test_a_permit_is_returned_while_its_thread_waits() -> None:
    limit = ConcurrencyLimit(1)
    with limit.hold() as mine:
        with mine.released(), limit.hold() as other:
            assert other.is_held and not mine.is_held
        assert mine.is_held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs `fork`")
def test_a_forked_process_has_all_permits() -> None:
    limit, may_end = ConcurrencyLimit(1), threading.Event()

    def hold() -> None:
        with limit.hold():
            may_end.wait(LONG)

    async def enter() -> None:
        async with asyncio.timeout(LONG), limit:
            assert limit.waiting == 0

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert waits(limit, 1)
    child = os.fork()
    if not child:
        status = 1
        try:
            asyncio.run(enter())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()
    for thread in threads:
        thread.join(LONG)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs `fork`")
def test_a_permit_of_the_parent_adds_none_to_a_forked_process() -> None:
    limit = ConcurrencyLimit(1)

    def hold() -> None:
        with limit.hold():
            pass

    with limit.hold():
        child = os.fork()
    if not child:
        status = 1
        try:
            with limit.hold():
                threading.Thread(target=hold, daemon=True).start()
                status = int(not waits(limit, 1))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
