"""Callbacks that code of agents schedules in an event loop, and exits of the program around the code."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from agentkit.ground.contained import contained


def stop(error: type[BaseException], *_: Any) -> None:
    raise error


async def schedule_everywhere(callback: Callable[..., None]) -> None:
    """Schedule a callback in each way that an event loop has, also in a task and in a thread."""
    loop = asyncio.get_running_loop()
    loop.call_soon(callback)
    loop.call_later(0, callback)
    loop.call_at(loop.time(), callback)
    loop.call_soon_threadsafe(callback)
    future = loop.create_future()
    future.add_done_callback(callback)
    future.set_result(None)
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(callback)
    await loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(callback))
    await asyncio.to_thread(lambda: loop.call_soon_threadsafe(callback))
    reader, writer = socket.socketpair()
    with reader, writer:
        called: list[int] = []

        def handle(remove: Callable[[int], object], number: int) -> None:
            remove(number)
            called.append(number)
            callback()

        writer.send(b"x")
        loop.add_reader(reader.fileno(), handle, loop.remove_reader, reader.fileno())
        loop.add_writer(writer.fileno(), handle, loop.remove_writer, writer.fileno())
        while len(called) < 2:
            await asyncio.sleep(0)


def test_a_callback_of_contained_code_that_exits_stops_no_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def serve() -> str:
        for error in (SystemExit, KeyboardInterrupt):
            await asyncio.create_task(contained(schedule_everywhere(partial(stop, error))))
        return "served"

    with caplog.at_level(logging.CRITICAL, "asyncio"):
        assert asyncio.run(serve()) == "served"


def test_exits_of_the_program_end_it_after_and_during_contained_code() -> None:
    async def exit_main() -> None:
        sys.exit(3)

    async def exit_callback() -> None:
        asyncio.get_running_loop().call_soon(stop, SystemExit)
        await asyncio.sleep(60)

    async def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    async def interrupt_code() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await contained(asyncio.sleep(60))

    async def program(end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.create_task(contained(asyncio.sleep(0)))
        await end()

    ends = {exit_main: SystemExit, exit_callback: SystemExit, interrupt: KeyboardInterrupt}
    for end, error in {**ends, interrupt_code: KeyboardInterrupt}.items():
        with pytest.raises(error):
            asyncio.run(program(end))
