"""W12: cost of a tool call that code makes, in CPU time of this process.

The limit is the same call as a step of a run, with a model that replies at once. `in process` is code mode with a
sandbox that makes the calls in this process: the cost of the inner run. The other sandboxes exchange messages with
their processes in addition: `bare pipe` is the sandbox of `in process` that first exchanges one line of JSON with a
process, the least that a call from another process can cost. In `together`, the code makes 20 calls at once, and the
limit is a reply with 20 calls. `hosted` has another limit: a model of the OpenAI SDK, which sends a request over
loopback HTTP for each direct call, as a hosted model does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from typing import Any

from adapters import loop_of, served
from harness import Figure, Work, figures, interleave, main

from agentkit import Agent, Limits, ScriptedModel, ToolCall, tool
from agentkit.sandbox import (
    AnswerCalls,
    MontySandbox,
    ProcessSandbox,
    Sandbox,
    SandboxCall,
    SandboxJob,
    SandboxLimits,
    SandboxResult,
    code_mode,
)

TOGETHER = 20
LIMITS = SandboxLimits(seconds=60)


@tool
async def stock(item: str) -> int:
    """Count an item."""
    return 3


class InProcess:
    """A sandbox that makes the calls of its code, `rounds calls`, without executing code."""

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        """Make the calls."""
        rounds, calls = map(int, job.code.split())
        for _ in range(rounds):
            await answer([SandboxCall("stock", ("lamp",))] * calls)
        return SandboxResult()


ECHO = """
import json, sys
for line in sys.stdin:
    json.loads(line)
    print(json.dumps({"calls": [["stock", ["lamp"], {}]]}), flush=True)
"""


class BarePipe(InProcess):
    """The same sandbox, which exchanges a line of JSON with a process before each group of calls."""

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        """Make the calls."""
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", ECHO, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        rounds, calls = map(int, job.code.split())
        for _ in range(rounds):
            process.stdin.write(json.dumps({"answers": [{"value": 3, "error": ""}] * calls}).encode() + b"\n")
            json.loads(await process.stdout.readline())
            await answer([SandboxCall("stock", ("lamp",))] * calls)
        process.stdin.close()
        await process.wait()
        return SandboxResult()


def direct(calls: int) -> Work:
    """Return runs whose model makes `calls` calls in each reply."""

    def work(n: int) -> object:
        reply = [ToolCall(f"c{number}", "stock", '{"item": "lamp"}') for number in range(calls)]
        model = ScriptedModel([*[reply] * (n // calls), "Done."])
        return asyncio.run(_run(Agent(model, tools=[stock], limits=Limits(steps=n + 2))))

    return work


def in_code(sandbox: Sandbox, calls: int) -> Work:
    """Return runs whose code makes `calls` calls at once."""

    def work(n: int) -> object:
        rounds = n // calls
        code = f"{rounds} {calls}"
        if not isinstance(sandbox, InProcess):
            code = f"import asyncio\nfor _ in range({rounds}):\n    await "
            code += "stock('lamp')" if calls == 1 else f"asyncio.gather(*[stock('lamp') for _ in range({calls})])"
        model = ScriptedModel([ToolCall("c1", "run_code", {"code": code}), "Done."])
        return asyncio.run(_run(Agent(model, tools=code_mode([stock], sandbox=sandbox, limits=LIMITS))))

    return work


async def _run(agent: Agent[Any, Any]) -> None:
    result = await agent.run("?")
    assert not result.tool_errors


def sequential(rounds: int) -> Iterable[Figure]:
    """Measure calls one after the other."""
    return _measured("W12 call in code", 1, rounds)


def together(rounds: int) -> Iterable[Figure]:
    """Measure calls that the code makes at once."""
    return _measured("W12 calls together", TOGETHER, rounds)


def hosted(rounds: int) -> Iterable[Figure]:
    """Measure calls one after the other, against runs of two direct calls with the OpenAI SDK."""
    with served() as port, asyncio.Runner() as runner:
        runs = loop_of("chat", port, is_streamed=False, is_long=False)
        candidates: dict[str, Work] = {
            "direct call, SDK": lambda n: runner.run(runs(n // 2)),
            "ProcessSandbox": in_code(ProcessSandbox(), 1),
            "MontySandbox": in_code(MontySandbox(), 1),
        }
        yield from figures("W12 call in code, hosted", interleave(candidates, 400, rounds))


def _measured(workload: str, calls: int, rounds: int) -> Iterable[Figure]:
    candidates = {
        "direct call": direct(calls),
        "in process": in_code(InProcess(), calls),
        "bare pipe": in_code(BarePipe(), calls),
        "ProcessSandbox": in_code(ProcessSandbox(), calls),
        "MontySandbox": in_code(MontySandbox(), calls),
    }
    return figures(workload, interleave(candidates, 400, rounds))


if __name__ == "__main__":
    main(__doc__, {"sequential": sequential, "together": together, "hosted": hosted})
