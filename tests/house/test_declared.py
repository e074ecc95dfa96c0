"""Imports of the packages are declared: in the base install, or in the extra of the code that imports them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.house.packages import MODULES, PACKAGES, parsed
from tests.paths import ROOT, SCRIPTS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OURS = {package.name for package in PACKAGES}
OF_EXTRAS = {
    "agentkit/cli": "cli",
    "agentkit/durable": "durable",
    "agentkit/model_evaluation": "cli",
    "agentkit/inspector": "server",
    "agentkit/server": "server ag-ui",
    "agentkit/ground/graceful_shutdown": "server",
    "agentkit/models": "openai anthropic",
    "agentkit/improve": "improve",
    "agentkit/observing": "otel",
    "agentkit/training": "parquet",
    "agentkit/testing": "dev",  # strategies for tests of prompts
    "memory/agentkit_memory/embedders": "dense sentence-transformers openai",
    "memory/agentkit_memory/index": "vector",
    "memory/agentkit_memory/terms": "vector",
    "memory/agentkit_memory/ingest": "ingest",
    "prompts/agentkit_prompts/pages": "ingest http",
    "prompts/agentkit_prompts/tokens": "tokens",
    "tools/agentkit_tools/mcp": "mcp",
    "tools/agentkit_tools/ready": "http",
    "tools/agentkit_tools/sandboxes": "monty",
}
"""Extras that the modules of a folder may import."""
MODULE_OF = {"fastembed": "fastembed", "sentence_transformers": "sentence-transformers"}
"""Modules of extras that are too large for some machines of the tests."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name)[0]).lower()


BASE = {normal(one) for one in PROJECT["dependencies"]}


def declared_for(folder: str) -> set[str]:
    """Distributions that a module in a folder may import."""
    extras = [
        extra for start, names in OF_EXTRAS.items() if f"{folder}/".startswith(f"{start}/") for extra in names.split()
    ]
    return BASE | {normal(one) for extra in extras for one in PROJECT["optional-dependencies"][extra]}


def imported_by(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def test_imports_of_a_module_are_declared() -> None:
    owners = packages_distributions()
    wrong = []
    for path in MODULES:
        allowed = declared_for(path.parent.relative_to(ROOT).as_posix())
        for module in imported_by(parsed(path)):
            names = {normal(owner) for owner in owners.get(module, [MODULE_OF.get(module, module)])}
            if not names & allowed:
                wrong.append(f"{path.relative_to(ROOT)}: {module} of {', '.join(sorted(names))}")
    assert not wrong, "imported and not declared"


def test_an_undeclared_import_is_found() -> None:
    assert imported_by(ast.parse("import os, starlette.routing\nfrom mcp_types import Tool\nimport agentkit")) == {
        "starlette",
        "mcp_types",
    }
    assert "mcp-types" not in declared_for("tools/agentkit_tools/schemas")
    assert "mcp-types" in declared_for("tools/agentkit_tools/mcp")


def test_the_environment_of_the_tests_has_the_extras_of_every_script() -> None:
    def requirements_of(extra: str) -> set[str]:
        lines = [
            normal(line) for line in PROJECT["optional-dependencies"][extra] if not line.startswith(PROJECT["name"])
        ]
        inner = [line for line in PROJECT["optional-dependencies"][extra] if line.startswith(PROJECT["name"])]
        names = [name for line in inner for name in re.findall(r"[\w-]+", line.partition("[")[2])]
        return set(lines).union(*map(requirements_of, names))

    for script in SCRIPTS:
        for asked in re.findall(r"^\./scripts/setup ([\w,-]+)$", script.read_text("utf-8"), re.MULTILINE):
            for extra in set(asked.split(",")) - {"bench"}:  # scripts/setup installs more for this extra
                assert requirements_of(extra) <= requirements_of("dev"), f"{script.name}: dev has not all of {extra}"
