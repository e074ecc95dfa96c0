"""Tools from the public methods of an object, or the public functions of a module."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from types import FunctionType, ModuleType
from typing import Any

from agentkit_prompts.names import nearest
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.callables import inner_function
from agentkit_tools.tool import Tool

_METHODS = (FunctionType, classmethod, staticmethod, Tool)
"""Types of the attributes of a class that become tools: no properties, nested classes or callable objects."""


def methods_of(thing: object, only: Iterable[str] | None, without: Iterable[str]) -> list[Tool]:
    """Return a tool for each public method of an object, base classes first; see `Toolset.from_object`."""
    if isinstance(thing, type):
        raise ToolDefinitionError(f"Toolset.from_object: {thing.__name__} is a class: pass an instance")
    if isinstance(thing, ModuleType):
        raise ToolDefinitionError(f"Toolset.from_object: {thing.__name__} is a module: use Toolset.from_module")
    kind = type(thing)
    where = f"Toolset.from_object({kind.__name__})"
    home = _package(kind.__module__)
    offered: dict[str, bool] = {}
    for body in reversed(kind.__mro__):
        for name in vars(body):
            if not name.startswith("_") and _is_method(kind, name):
                # Methods of base classes from other packages are offered only by name.
                offered[name] = offered.get(name, False) or _package(body.__module__) == home
    names = _selected(where, offered, [name for name, own in offered.items() if own], only, without)
    return _tools(where, {name: getattr(thing, name) for name in names})


def _is_method(kind: type, name: str) -> bool:
    """Return True for a method, also if a decorator replaced it by an object, such as `functools.cache`."""
    # `getattr_static` does not run the code of properties.
    attribute: object = inspect.getattr_static(kind, name, None)
    is_bound = callable(attribute) and hasattr(attribute, "__get__")
    is_wrapper = isinstance(getattr(attribute, "__wrapped__", None), FunctionType)
    return isinstance(attribute, _METHODS) or (is_bound and is_wrapper)


def functions_of(module: ModuleType, only: Iterable[str] | None, without: Iterable[str]) -> list[Tool]:
    """Return a tool for each public function of a module, in their order; see `Toolset.from_module`."""
    if not isinstance(module, ModuleType):
        raise ToolDefinitionError(f"Toolset.from_module: expected a module, got {type(module).__name__}")
    where = f"Toolset.from_module({module.__name__})"
    listed: Collection[str] | None = getattr(module, "__all__", None)
    offered = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (listed is None or name in listed)
        and (inspect.isroutine(value) or isinstance(value, Tool))
    }
    usual = [name for name, value in offered.items() if listed is not None or _home(value) == module.__name__]
    names = _selected(where, offered, usual, only, without)
    return _tools(where, {name: offered[name] for name in names})


def _home(value: Any) -> str | None:
    """Return the name of the module that defines a function."""
    if isinstance(value, Tool):
        value = value.function
    home: str | None = getattr(inner_function(value), "__module__", None)
    return home


def _package(module: str) -> str:
    return module.partition(".")[0]


def _selected(
    where: str, offered: Collection[str], usual: list[str], only: Iterable[str] | None, without: Iterable[str]
) -> list[str]:
    texts = {option: names for option, names in (("only", only), ("without", without)) if isinstance(names, str)}
    if texts:
        problems = [f"{option}: expected a list of names, such as [{name!r:.80}]" for option, name in texts.items()]
        raise ToolDefinitionError(f"{where}: {'; '.join(problems)}", names=texts)
    excluded = list(without)
    unknown = [name for name in excluded if name not in offered]
    if only is not None:
        usual = list(only)
        unknown = [name for name in usual if name not in offered] + unknown
    if unknown:
        problems = [f"{name} is not public there{nearest(name, offered)}" for name in unknown]
        raise ToolDefinitionError(f"{where}: {'; '.join(problems)}", names=unknown)
    return [name for name in usual if name not in excluded]


def _tools(where: str, functions: dict[str, Any]) -> list[Tool]:
    tools: list[Tool] = []
    problems: dict[str, str] = {}
    for name, value in functions.items():
        try:
            if not isinstance(value, Tool):
                value = Tool(value, name=name)
            tools.append(value)
        except ToolDefinitionError as error:
            problems[name] = f"{name}: {error}"
    if problems:
        text = f"{where}: {'; '.join(problems.values())}; exclude them with without=[...]"
        raise ToolDefinitionError(text, names=problems)
    return tools
