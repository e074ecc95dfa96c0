"""`agentkit new`: creates a folder with an example agent: agent file, prompts, a tool and a test."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from agentkit.cli.options import AsJson
from agentkit.cli.screen import fail, note, put

_AGENT = """\
# yaml-language-server: $schema=./agent.schema.json
name: {name}
description: Answers questions about orders.
model: offline  # openai:gpt-5-mini, anthropic:..., or http://localhost:8000/v1#model
layers: prompts
tools:
  - ./tools.py:order_status
# memory: true  # documents (agentkit ingest FILES) and earlier conversations, in .agentkit
limits:
  steps: 8
  seconds: 60
"""
_SYSTEM = """\
---
role: system
---
You answer questions about orders, briefly and in the language of the question.
Look orders up with your tools instead of guessing.
Cite the documents that you use by their labels in square brackets.
"""
_DOCUMENTS = """\
---
role: before_input
kind: memo  # writes the recalled documents with their labels, so that this file needs no text below the second ---
fence: true
---
"""
_EARLIER = """\
---
role: before_input
kind: recalled  # writes the recalled messages of earlier conversations
fence: true
---
"""
_TOOLS = '''\
"""The tools of the agent."""

ORDERS = {"17": "shipped", "18": "waiting for payment"}


def order_status(order: str) -> str:
    """Return the status of an order.

    Args:
        order: Number of the order.
    """
    return ORDERS.get(order, "unknown order")
'''
_TEST = '''\
"""Tests of the agent with a scripted model."""

from pathlib import Path

from agentkit import Message, ScriptedModel, ToolCall
from agentkit.agent_files import load_agent
from agentkit.testing import no_real_models

FILE = Path(__file__).with_name("agent.yaml")


def test_the_agent_looks_an_order_up():
    call = Message("assistant", tool_calls=(ToolCall("c1", "order_status", '{"order": "17"}'),))
    model = ScriptedModel([call, "It was shipped."])
    loaded = load_agent(FILE, model=model)
    with no_real_models():
        result = loaded.agent.run_sync("Where is order 17?")
    assert result.output == "It was shipped."
    assert model.requests[-1].messages[-1].text == "shipped"
'''


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    as_json: AsJson = False,
) -> None:
    """Create a folder with an example agent: `agent.yaml`, prompts, a tool and a test.

    Example: agentkit new shop && cd shop && agentkit chat --agent agent.yaml
    """
    from agentkit.agent_files.agent_file import agent_file_schema

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fail(f"{folder} is not an empty folder: name a new or empty folder")
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", folder.absolute().name).strip("-_.") or "agent"
    files = {
        "agent.yaml": _AGENT.format(name=name[:64]),
        "agent.schema.json": json.dumps(agent_file_schema(), indent=2) + "\n",
        "prompts/system.prompt.j2": _SYSTEM,
        "prompts/documents.prompt.j2": _DOCUMENTS,
        "prompts/earlier.prompt.j2": _EARLIER,
        "tools.py": _TOOLS,
        "test_agent.py": _TEST,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    if as_json:
        put(json.dumps({"folder": str(folder), "files": list(files)}))
        return
    for path in files:
        put(str(folder / path))
    test = "pip install pytest && python -m pytest"
    if find_spec("pytest"):
        test = "python -m pytest"
    note(f"next: cd {folder} && agentkit chat --agent agent.yaml; its test: {test}")
