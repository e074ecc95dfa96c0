"""PerLoop: one value for each event loop, which a fork leaves to the parent process."""

from __future__ import annotations

import asyncio
import os

import pytest

from agentkit_prompts.system.per_loop import PerLoop


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs `fork`")
def test_a_forked_process_creates_and_closes_only_its_values() -> None:
    closed: list[object] = []

    async def close(value: object) -> None:
        closed.append(value)

    # The order in which a loop closes its generators is not defined, so one owner could pass by chance.
    owners = [PerLoop[object](close) for _ in range(16)]

    async def values() -> list[object]:
        return [await owner.value(object) for owner in owners]

    with asyncio.Runner() as runner:
        of_parent = runner.run(values())
        child = os.fork()
        if not child:
            status = 1
            try:
                of_child = runner.run(values())
                runner.close()
                status = int({*closed} != {*of_child} or not {*closed}.isdisjoint(of_parent))
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert runner.run(values()) == of_parent
    assert {*closed} == {*of_parent}
