"""Evaluation of 10,000 rows with a model without latency.

Few-shot rows: the limit is the cost of the prompts alone, their creation and their form as chat messages.
Rows of an agent: the limit is the cost of the bare runs, without scores and without a report.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import Figure, Work, figures, interleave, main
from icl import COLUMNS, DATASET, EXAMPLES, ROWS, TEMPLATE, TRAIN

from agentkit import Agent, Limits, RunResult, ScriptedModel, ToolCall, tool
from agentkit.evals import EvalRow, contains, evaluate
from agentkit.prompts import Composition, Layers, UserInputPrompt, WrapPrompt
from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    DatasetReader,
    InContext,
    PromptTemplate,
    chat_messages,
    run_sync,
)
from agentkit.prompts.example_selectors import StaticSelector

AGENT_ROWS = 10_000
"""Number of rows of an agent."""
META = {
    "round": [{"role": "HUMAN"}, {"role": "BOT", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM"}],
}


def evaluations(rounds: int) -> Iterable[Figure]:
    """Measure the prompts alone, and whole evaluations with and without a file of answers."""
    icl = InContext(
        DatasetReader(COLUMNS, "answer"),
        PromptTemplate(TEMPLATE, ice_token="</E>"),
        ice_template=PromptTemplate(EXAMPLES),
        retriever=StaticSelector(ids=[str(number) for number in range(len(TRAIN))]),
        train=TRAIN,
    )
    meta = ApiMetaTemplate(META)

    def prompts(n: int) -> None:
        for prompt in icl.prompts(DATASET[:n], meta):
            chat_messages(prompt.final)

    def run(n: int) -> None:
        run_sync(icl, DATASET[:n], ScriptedModel.repeat("B", keep=1), score="choice", concurrency=200)

    def run_with_file(n: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = ScriptedModel.repeat("B", keep=1)
            run_sync(icl, DATASET[:n], model, out=Path(folder, "out"), score="choice", concurrency=200)

    seconds = interleave({"prompts": prompts, "run": run, "run with out=": run_with_file}, ROWS, rounds)
    return figures("evaluation of few-shot rows", seconds)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _reply(composition: Composition) -> str | ToolCall:
    """Call the tool once, and answer with its result."""
    last = composition.messages[-1]
    if last.role == "tool":
        return f"It is {last.text}."
    return ToolCall(name="add", arguments={"a": 1, "b": 1})


def calculator() -> Agent:
    """Return an agent that calls a tool before it answers."""
    return Agent(ScriptedModel.repeat(_reply, keep=1), "You calculate.", tools=[add], name="calculator")


def user_calculator() -> Agent:
    """Return the calculator as users write it: layers, a custom template and limits."""
    layers = Layers(system="You calculate.", input=WrapPrompt((UserInputPrompt(),), "Sum: {{ wrapped_str }}\nAdd."))
    model = ScriptedModel.repeat(_reply, keep=1)
    return Agent(model, layers=layers, tools=[add], limits=Limits(steps=5, tokens=10_000), name="calculator")


def is_short(row: EvalRow, result: RunResult[Any]) -> float:
    """Return 1 if the answer is short."""
    return float(len(str(result.output)) < 100)


def talker() -> Agent:
    """Return the agent with the cheapest runs: one request, and no tool."""
    return Agent(ScriptedModel.repeat("It is 2.", keep=1), "You calculate.", name="talker")


def agents(rounds: int) -> Iterable[Figure]:
    """Measure bare runs of agents, and their evaluations with and without a file of outcomes.

    The limit of an evaluation with a file is the cost of bare runs with a journal each.
    """
    rows = [{"input": f"What is {number} + 1?", "expected": "2"} for number in range(AGENT_ROWS)]

    async def bare(agent: Agent, n: int, folder: str | None = None) -> None:
        async def work(waiting: Iterator[int]) -> None:
            for number in waiting:
                journal = None
                if folder is not None:
                    journal = Path(folder, f"{number}.jsonl")
                await agent.run(rows[number]["input"], journal=journal)

        waiting = iter(range(n))
        await asyncio.gather(*[work(waiting) for _ in range(8)])

    def bare_with_journals(n: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(bare(calculator(), n, folder))

    def run_with_file(n: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(evaluate(calculator(), rows[:n], [contains], out=Path(folder, "out.jsonl")))

    for title, agent, scores, count in (
        ("agent with a tool", calculator, [contains], AGENT_ROWS),
        ("agent, custom", user_calculator, [contains, is_short], AGENT_ROWS // 5),
        ("agent of one request", talker, [contains], AGENT_ROWS // 5),
    ):
        candidates: dict[str, Work] = {
            "bare runs": lambda n, agent=agent: asyncio.run(bare(agent(), n)),
            "evaluate": lambda n, agent=agent, scores=scores: asyncio.run(evaluate(agent(), rows[:n], scores)),
        }
        yield from figures(title, interleave(candidates, count, rounds))
    seconds = interleave({"bare runs": bare_with_journals, "evaluate out=": run_with_file}, AGENT_ROWS // 10, rounds)
    yield from figures("agent with journals", seconds)


if __name__ == "__main__":
    main(__doc__, {"evaluations": evaluations, "agents": agents})
