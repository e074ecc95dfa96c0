"""The event loop of async embedders."""

from __future__ import annotations

import gc
import weakref

import pytest

from agentkit.memory import StoreClosed
from agentkit_memory.process.embedder_calls import EmbedderCalls


class Vectors(list[float]):
    """A list that can be referred to weakly."""


async def embed() -> Vectors:
    return Vectors([1.0])


async def fail() -> Vectors:
    raise ConnectionError("away")


def test_nothing_of_a_result_stays_after_it_was_returned() -> None:
    calls = EmbedderCalls()
    returned = [calls.result(embed()) for _ in range(10)]
    seen = [weakref.ref(each) for each in returned]
    with pytest.raises(ConnectionError):
        calls.result(fail())
    assert calls.result(embed()) == [1.0]  # the loop is done with those before
    del returned
    gc.collect()
    assert [each() for each in seen] == [None] * 10
    calls.close()
    with pytest.raises(StoreClosed):
        calls.result(embed())
