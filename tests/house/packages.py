"""The four packages and their modules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.paths import ROOT

PACKAGES = [
    ROOT / "agentkit",
    ROOT / "prompts/agentkit_prompts",
    ROOT / "tools/agentkit_tools",
    ROOT / "memory/agentkit_memory",
]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module: several tests read every module."""
    return ast.parse(path.read_text("utf-8"))


def module_name(path: Path) -> str:
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
