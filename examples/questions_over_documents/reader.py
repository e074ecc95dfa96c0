"""The agent that reads the notes: the layers of its prompt, with two ways to show documents."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agentkit import Agent, Layers, Memory, OfflineModel, RecallOptions, model
from agentkit.models import Model
from agentkit.prompts import MemoPrompt, Size, TextPrompt

FOLDER = Path(__file__).parent
INSTRUCTIONS = """\
Answer from the documents, in one sentence. Put the label of each document that you use in brackets, as it is written
there. If the documents do not contain the answer, write: the notes do not say.
"""
SIZE = Size(cut="items", min=60)
"""Under a budget the last documents are left out first; at least one stays."""
DOCUMENT_PROMPTS = {
    "default": MemoPrompt(size=SIZE),
    "short": MemoPrompt(
        template="{% for document in documents %}[{{ document.label }}] {{ document.text }}\n{% endfor %}", size=SIZE
    ),
}
"""Variants of one layer of the prompt, which `evaluate.py` compares."""


def answering_model() -> Model:
    """Return the model that the variable MODEL names, such as `openai:gpt-5-mini`, or an offline model that quotes."""
    return model(os.environ["MODEL"]) if "MODEL" in os.environ else OfflineModel()


def open_notes(home: str) -> Memory:
    """Open a store in the folder `home`, and ingest the notes. Unchanged files are skipped, deleted files forgotten."""
    memory = Memory(home, scope="notes")
    # Labels contain the path as it is given here: a relative path has no folders of this machine.
    with contextlib.chdir(FOLDER):
        report = memory.ingest("notes")
    if report.errors:
        memory.close()
        raise SystemExit(f"questions_over_documents: {report.errors}")
    return memory


def reader_agent(memory: Memory, answering: Model, *, documents: str = "default", budget: int | None = None) -> Agent:
    """Return the agent.

    Args:
        memory: Store of the notes.
        answering: The model.
        documents: Key of `DOCUMENT_PROMPTS`.
        budget: Maximum tokens of the prompt.
    """
    layers = Layers(system=TextPrompt(INSTRUCTIONS), before_input=DOCUMENT_PROMPTS[documents])
    return Agent(answering, layers=layers, name="reader", memory=memory, recall=RecallOptions(limit=3), budget=budget)
