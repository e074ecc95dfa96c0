"""Libraries whose private or unstable names the packages use are pinned to a version that has these names."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Any

import pytest
from jinja2 import Undefined
from jinja2.utils import Namespace

import agentkit_prompts.chat_templates.jinja
import agentkit_prompts.templates.sandbox
from tests.house.packages import MODULES
from tests.paths import ROOT

PINS = {"jinja2": "<3.2", "jsonschema-rs": "<0.62", "qdrant-edge-py": "==0.9.0", "dbos": "<3.5"}
OVERRIDDEN = {
    "BoundedCodeGenerator": {
        "_output_child_post",
        "_output_child_pre",
        "_output_child_to_const",
        "blockvisit",
        "signature",
        "visit",
        "visit_Add",
        "visit_AssignBlock",
        "visit_Compare",
        "visit_Concat",
        "visit_Dict",
        "visit_For",
        "visit_Getattr",
        "visit_Getitem",
        "visit_With",
        "write_commons",
    },
    "BoundedContext": {"derived"},
    "BoundedEnvironment": {
        "_parse",
        "call",
        "call_binop",
        "call_unop",
        "getitem",
        "unsafe_undefined",
        "wrap_str_format",
    },
    "ChatContext": {"derived"},
    "PromptContext": {"resolve_or_missing"},
    "PromptEnvironment": {"call", "call_binop", "getattr", "getitem", "is_safe_callable"},
    "PromptUndefined": {"_fail_with_undefined_error"},
    "TracingCodeGenerator": {
        "end_write",
        "start_write",
        "visit_Assign",
        "visit_Call",
        "visit_Getattr",
        "visit_Or",
        "visit_Output",
        "write_commons",
    },
    "_CountTokens": {"filter_stream"},
    "_Formatter": {"get_field"},
    "_Generation": {"parse"},
    "_QuickKeys": {"visit_Getattr", "visit_Getitem"},
}
"""Functions of Jinja that the packages override. If Jinja renames a function, its override is never called."""


def overrides() -> Iterator[tuple[type, str, Any, Any]]:
    """Yield each override of a function of Jinja: the class, the name, the function, and the function of Jinja."""
    for package in (agentkit_prompts.templates.sandbox, agentkit_prompts.chat_templates.jinja):
        for info in iter_modules(package.__path__, f"{package.__name__}."):
            for member in vars(import_module(info.name)).values():
                if not inspect.isclass(member) or member.__module__ != info.name:
                    continue
                bases = [base for base in member.__mro__[1:] if base.__module__.startswith("jinja2")]
                for name, function in vars(member).items():
                    owner = next((base for base in bases if name in vars(base)), None)
                    if owner and inspect.isroutine(function) and not name.startswith("__"):
                        yield member, name, function, vars(owner)[name]


def parameters(function: Any) -> list[str]:
    """Return the names of the parameters, without `self`."""
    names = list(inspect.signature(function).parameters)
    return names if isinstance(function, staticmethod) else names[1:]


@pytest.mark.parametrize("name", PINS)
def test_a_library_with_unstable_names_is_pinned(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    pins = [re.split(r"[;,\s]", line[len(name) :]) for line in lines if re.match(rf"{name}(?![\w-])", line)]
    assert pins
    assert [pin for pin in pins if PINS[name] not in pin] == []


def test_jinja_has_each_function_that_is_overridden_with_the_same_parameters() -> None:
    names: dict[str, set[str]] = {}
    different = []
    for member, name, ours, theirs in overrides():
        names.setdefault(member.__name__, set()).add(name)
        if len(parameters(ours)) != len(parameters(theirs)):
            different.append(f"{member.__name__}.{name}: {parameters(ours)}, in Jinja {parameters(theirs)}")
    assert names == OVERRIDDEN
    assert different == []


def test_values_of_jinja_have_the_private_attributes_that_are_read() -> None:
    undefined = Undefined(hint="a hint", obj={"a": 1}, name="b")
    names = ("hint", "obj", "name")
    assert [getattr(undefined, f"_undefined_{name}") for name in names] == ["a hint", {"a": 1}, "b"]
    assert Namespace(a=1)._Namespace__attrs == {"a": 1}


def test_only_one_module_imports_the_index_library_whose_interface_changes() -> None:
    statement = re.compile(r"^\s*(import|from) qdrant_edge", re.MULTILINE)
    importers = {path.relative_to(ROOT).as_posix() for path in MODULES if statement.search(path.read_text("utf-8"))}
    assert importers == {"memory/agentkit_memory/index/edge_config.py"}
