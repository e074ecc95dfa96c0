"""Adds a page to the site for each public module of agentkit: every public name with its docstring."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import FunctionType, ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOORS = {
    "agentkit.prompts": "Prompts",
    "agentkit.prompts.chat_templates": "Chat templates",
    "agentkit.prompts.evaluation": "Evaluation",
    "agentkit.prompts.example_selectors": "Example selectors",
    "agentkit.prompts.prompters": "Prompters",
    "agentkit.tools": "Tools",
    "agentkit.memory": "Memory",
    "agentkit.memory.recall": "Parts of recall",
    "agentkit.inbox": "Messages to running runs",
    "agentkit.inspector": "Inspector",
    "agentkit.models": "Models",
    "agentkit.durable": "Durable runs",
    "agentkit.observing": "Spans and metrics",
    "agentkit.sandbox": "Code mode and sandboxes",
    "agentkit.server": "Server",
    "agentkit.agent_files": "Agent files",
    "agentkit.errors": "Errors of runs",
    "agentkit.testing": "Testing",
    "agentkit.training": "Fine-tuning rows",
    "agentkit": "Agents and runs",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages; MkDocs calls this function after it has read the pages of `docs`."""
    described: set[str] = set()
    for door, title in DOORS.items():
        files.append(File.generated(config, f"reference/{door}.md", content=page(door, title, described)))
    return files


def page(door: str, title: str, described: set[str]) -> str:
    """Return the page of a public module: its heading, and its public names in alphabetical order.

    Args:
        door: Name of the module.
        title: Heading of the page.
        described: Names with a description on an earlier page, which are only listed here; this page adds its names.
    """
    module = importlib.import_module(door)
    names = sorted((name for name in module.__all__ if not name.startswith("_")), key=str.lower)
    entries = {name: _entry(module, name) for name in names}
    elsewhere = [name for name in names if entries[name] in described]
    here = [entry for entry in entries.values() if entry not in described]
    described.update(here)
    links = [f"[{name}][{entries[name].removeprefix('::: ')}]" for name in elsewhere]
    also = [f"Described with their layer: {', '.join(links)}."] if links else []
    return "\n\n".join([f"# {title}", f"Names of `{door}`.", *also, *here, ""])


def _entry(door: ModuleType, name: str) -> str:
    value = getattr(door, name)
    home = value.__module__ if isinstance(value, type | FunctionType) else ""
    if isinstance(value, type) and not home.startswith("agentkit"):
        return f"## {name}\n\n`{home}.{value.__qualname__}`, of another library."
    if not home:  # a constant, an alias, or a function that a decorator made something else of
        known = [at for at, module in sys.modules.items() if at.startswith("agentkit") and _assigns(module, name)]
        home = max(known, key=len)
    return f"::: {home}.{name}"


def _assigns(module: ModuleType, name: str) -> bool:
    code = "" if module.__file__ is None else Path(module.__file__).read_text("utf-8")
    return re.search(rf"^(?:{name}\b[^=\n]*=|(?:async )?def {name}\()", code, re.MULTILINE) is not None
