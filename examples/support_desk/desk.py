"""The agent of the support desk: its prompt, its tools, its memory and its limits."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from shop import Customer, my_orders, order_status, refund
from stand_in import stand_in

from agentkit import Agent, Layers, Limits, Memory, RecallOptions, model
from agentkit.models import Model
from agentkit.prompts import MemoPrompt, RecalledPrompt, Size, TextPrompt

INSTRUCTIONS = """\
You are the support desk of a shop. Answer in at most three sentences.
- Take facts about orders from the tools, and rules from the documents. Cite documents by their labels in brackets.
- Before you call `refund`, check the order. If neither tools nor documents have the answer, offer to ask a colleague.
"""
FOLDER = Path(__file__).parent


def desk_model() -> Model:
    """Return the model that the variable MODEL names, such as `openai:gpt-5-mini`, or an offline stand-in."""
    return model(os.environ["MODEL"]) if "MODEL" in os.environ else stand_in()


def desk_agent(memory: Memory, answering: Model) -> Agent[Customer, str]:
    """Return the agent of the desk.

    The order of the layers keeps the prompt cache of the provider warm: the instructions are the same in all runs, and
    the documents of a question come after the conversation.
    """
    layers = Layers(
        system=TextPrompt(INSTRUCTIONS),
        before_input=[
            # Documents give way to messages if the context window is small, but two chunks stay.
            MemoPrompt(size=Size(cut="items", min=100)),
            RecalledPrompt(),
        ],
    )
    return Agent(
        answering,
        layers=layers,
        name="desk",
        tools=[my_orders, order_status, refund],
        deps=Customer,
        memory=memory,
        recall=RecallOptions(limit=4),
        limits=Limits(steps=8, tokens=20_000, seconds=60),
    )


def store_policies(memory: Memory) -> None:
    """Ingest the rules of the shop for all customers; unchanged files are skipped."""
    # The model and the customers see paths as they are given: a relative path has no folders of this machine.
    with contextlib.chdir(FOLDER):
        report = memory.ingest("policies")
    if report.errors:
        raise SystemExit(f"support_desk: {report.errors}")
