"""Evaluate recall, citations and answers on `questions.jsonl`, for each variant of the layer that shows documents.

`MODEL=openai:gpt-5-mini python evaluate.py` evaluates a real model. `--budget` shows the scores of a smaller prompt.
The exit code is 1 if a variant answers fewer than `GOAL` of the questions, for CI.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from pydantic import BaseModel, ConfigDict
from reader import DOCUMENT_PROMPTS, answering_model, open_notes, reader_agent

from agentkit import Agent, Memory, RunResult
from agentkit.models import Model

GOAL = 0.8
"""Share of the questions that must be answered."""


class Question(BaseModel):
    """A question, the file that has its answer (None if no file has it), and text that the answer must contain."""

    model_config = ConfigDict(extra="forbid")

    question: str
    source: str | None
    contains: list[str]


@dataclass
class Score:
    """Score of one question: found in recall, cited, answered, and the tokens of the prompt."""

    recalled: bool
    cited: bool
    answered: bool
    tokens: int


def load_questions() -> list[Question]:
    """Read the questions, one JSON object per line."""
    lines = Path(__file__).with_name("questions.jsonl").read_text("utf-8").splitlines()
    return [Question.model_validate_json(line) for line in lines]


def compare(question: Question, result: RunResult[str]) -> Score:
    """Compare a run with the expectations of its question.

    A question without a source is answered if the answer cites nothing: an agent must not invent.
    """
    cited = {citation.document.source for citation in result.citations}
    if question.source is None:
        return Score(recalled=True, cited=not cited, answered=not cited, tokens=result.composition.tokens)
    return Score(
        recalled=question.source in {document.source for document in result.composition.context.documents},
        cited=question.source in cited,
        answered=all(text in result.output for text in question.contains),
        tokens=result.composition.tokens,
    )


def evaluate(memory: Memory, answering: Model, documents: str, budget: int | None) -> float:
    """Ask all questions with a variant of the prompt, print its row, and return the share of answered questions."""
    agent: Agent = reader_agent(memory, answering, documents=documents, budget=budget)
    scores = [compare(question, agent.run_sync(question.question)) for question in load_questions()]
    recalled = mean(score.recalled for score in scores)
    cited = mean(score.cited for score in scores)
    answered = mean(score.answered for score in scores)
    tokens = median(score.tokens for score in scores)
    print(f"{documents:9}  {recalled:8.0%}  {cited:8.0%}  {answered:8.0%}  {tokens:6.0f}")
    return answered


def main() -> int:
    """Evaluate all variants, and return the exit code."""
    parser = argparse.ArgumentParser(description="Evaluate the agent on questions.jsonl.")
    parser.add_argument("--budget", type=int, help="maximum tokens of the prompt")
    budget = parser.parse_args().budget
    answering = answering_model()
    print("documents  recalled     cited  answered  tokens")
    with tempfile.TemporaryDirectory() as home, open_notes(home) as memory:
        shares = [evaluate(memory, answering, name, budget) for name in DOCUMENT_PROMPTS]
    return 0 if min(shares) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
