"""Evaluate the desk on the cases of `cases.yaml`: the tools that were called, the answer, and the size of the prompt.

`MODEL=openai:gpt-5-mini python evaluate.py` evaluates a real model. The exit code is 1 if a case fails, for CI.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml
from desk import desk_agent, desk_model, store_policies
from pydantic import BaseModel, ConfigDict, TypeAdapter
from shop import Customer, open_shop

from agentkit import Agent, Memory, RunResult
from agentkit.models import Model


class Case(BaseModel):
    """A question of a customer and its expectations."""

    model_config = ConfigDict(extra="forbid")

    customer: str
    question: str
    tools: list[str] = []
    contains: list[str] = []
    lacks: list[str] = []

    def problems(self, result: RunResult[str]) -> list[str]:
        """Return the expectations that a run does not meet."""
        called = [call.name for message in result.messages for call in message.tool_calls]
        answer = result.output.lower()
        problems = [] if called == self.tools else [f"called {called}, expected {self.tools}"]
        problems += [f"{text!r} is missing" for text in self.contains if text.lower() not in answer]
        problems += [f"{text!r} must be absent" for text in self.lacks if text.lower() in answer]
        return problems


def load_cases() -> list[Case]:
    """Read the cases; all problems of the file are in one error."""
    data = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text("utf-8"))
    return TypeAdapter(list[Case]).validate_python(data)


def evaluate(answering: Model) -> list[str]:
    """Run each case in an empty session with a fresh shop, print a line for each, and return the failed questions."""
    failed = []
    with tempfile.TemporaryDirectory() as home, Memory(home, scope="shop") as memory:
        store_policies(memory)
        agent: Agent[Customer, str] = desk_agent(memory, answering)
        for case in load_cases():
            deps = Customer(case.customer, open_shop())
            result = agent.run_sync(case.question, deps=deps, approve=lambda call: True)
            problems = case.problems(result)
            status = "; ".join(problems) or "ok"
            print(f"{case.customer}: {case.question:32} {result.composition.tokens:5} tokens  {status}")
            failed += [case.question] if problems else []
    return failed


if __name__ == "__main__":
    sys.exit(1 if evaluate(desk_model()) else 0)
