"""Actions of another writer between two statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from sqlalchemy import event

from agentkit.memory import Memory
from agentkit.testing import StoreProbe


@contextmanager
def before(memory: Memory, start: str, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Call a function once, before the statement `number` of the statements with this start."""
    numbers = count(1)

    def listen(_: object, __: object, statement: str, *rest: object) -> None:
        if statement.startswith(start) and next(numbers) == number:
            act()

    event.listen(StoreProbe(memory).engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(StoreProbe(memory).engine, "before_cursor_execute", listen)
