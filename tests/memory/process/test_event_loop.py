"""The event loop of async embedders."""

from __future__ import annotations

import gc
import weakref

import pytest

from agentkit.memory import StoreClosed
from agentkit_memory.process.embedder_calls import EmbedderCalls


class Vectors(list[float]):
    """List with weak references."""


async def embed() -> Vectors:
    return Vectors([1.0])


async def fail() -> Vectors:
    raise ConnectionError("away")


def test_no_reference_to_a_returned_result_remains() -> None:
    calls = EmbedderCalls()
    returned = [calls.result(embed()) for _ in range(10)]
    seen = [weakref.ref(each) for each in returned]
    with pytest.raises(ConnectionError):
        calls.result(fail())
    assert calls.result(embed()) == [1.0]  # the loop has finished the previous tasks
    del returned
    gc.collect()
    assert [each() for each in seen] == [None] * 10
    calls.close()
    with pytest.raises(StoreClosed):
        calls.result(embed())
