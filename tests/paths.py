"""Where the repository is, and where the shared cases are when they are there."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CONFORMANCE = Path(os.environ.get("AGENTKIT_CONFORMANCE", SHARED / "conformance"))
DOORS = (
    "agentkit",
    "agentkit.durable",
    "agentkit.errors",
    "agentkit.memory",
    "agentkit.models",
    "agentkit.prompts",
    "agentkit.prompts.chat_templates",
    "agentkit.prompts.evaluation",
    "agentkit.prompts.example_selectors",
    "agentkit.prompts.prompters",
    "agentkit.testing",
    "agentkit.tools",
)
"""The modules that users import from."""
