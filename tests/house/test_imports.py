"""The cost of importing agentkit, and the direction of imports."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

import pytest

from tests.paths import ROOT

LAYERS = {
    "agentkit_prompts": set[str](),
    "agentkit_tools": {"agentkit_prompts"},
    "agentkit_memory": {"agentkit_prompts"},
}


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter after the statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


def modules_of_extras() -> set[str]:
    """Return the modules of distributions that an extra installs, directly or not, and the base install does not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base, extra = names(project["dependencies"]), set[str]()
    for requirements in project["optional-dependencies"].values():
        extra |= names(requirements)
    modules = packages_distributions()
    base, extra = closure(base), closure(extra - {project["name"]})
    owned = {module: names(owners) for module, owners in modules.items() if not module.startswith("_")}
    return {module for module, owners in owned.items() if owners <= extra - base}


def closure(wanted: set[str]) -> set[str]:
    seen, todo = set[str](), list(wanted)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            todo += names([line for line in requires(name) or [] if "extra ==" not in line])
        except importlib.metadata.PackageNotFoundError:
            continue
    return seen


def test_the_names_of_the_front_door_load_no_extra_and_no_database() -> None:
    loaded = loaded_by("from agentkit import Agent, Chain, PromptContext, tool")
    heavy = modules_of_extras() | {"alembic", "mako", "sqlalchemy"}
    assert {"mcp", "openai", "qdrant_client", "rich", "typer"} <= heavy
    assert not loaded & heavy


def test_the_engine_of_templates_is_loaded_with_the_first_template() -> None:
    door = "from agentkit import Agent, Chain, PromptContext, tool"
    assert "jinja2" not in loaded_by(door)
    assert "jinja2" in loaded_by(f"{door}\nAgent('openai:none', 'Be brief.')")


@pytest.mark.parametrize("layer", ["agentkit.prompts", "agentkit.tools", "agentkit.memory"])
def test_importing_a_layer_loads_no_extra_and_no_database(layer: str) -> None:
    assert not loaded_by(f"import {layer}") & (modules_of_extras() | {"alembic", "sqlalchemy"})


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_loads_only_lower_layers(package: str) -> None:
    ours = {name for name in loaded_by(f"import {package}") if name.startswith("agentkit")}
    assert ours <= LAYERS[package] | {package}


@pytest.mark.parametrize("layer", ["prompts", "tools", "memory"])
def test_every_public_name_of_a_layer_is_importable_from_agentkit(layer: str) -> None:
    door = importlib.import_module(f"agentkit.{layer}")
    inside = importlib.import_module(f"agentkit_{layer}")
    assert inside.__all__
    assert [name for name in inside.__all__ if getattr(door, name) is not getattr(inside, name)] == []


def test_a_public_name_is_never_the_module_of_that_name() -> None:
    code = f"import importlib, types\npackages = [importlib.import_module(name) for name in {['agentkit', *LAYERS]}]\n"
    code += "for p in packages:\n    for name in p.__all__: getattr(p, name)\n"
    code += "print([name for p in packages for name in p.__all__ if isinstance(getattr(p, name), types.ModuleType)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
