"""What a context holds beside messages: documents, facts, examples and tool specs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.errors import PromptError

__all__ = ["Document", "Example", "Fact", "ToolSpec", "Trust", "per_toolset"]

Trust: TypeAlias = Literal["trusted", "untrusted"]


def _frozen_metadata(item: object, metadata: Mapping[str, Any]) -> None:
    if type(metadata) is not FrozenDict:
        object.__setattr__(item, "metadata", _freeze(metadata, f"metadata of {type(item).__name__}"))


def _freeze(data: object, what: str) -> Any:
    try:
        return freeze(data)
    except RecursionError:
        raise PromptError(f"{what}: the data is cyclic or nests too deeply; pass plain, flatter data") from None


@dataclass(frozen=True, slots=True)
class Document:
    """A recalled passage.

    `score` is the recall score (higher is better), `source` the file or address it came from, `position` its index
    among the chunks of that source. Text is untrusted unless `trust` says otherwise. An `atomic` document is never
    cut inside.
    """

    text: str
    id: str = ""
    title: str = ""
    source: str = ""
    score: float | None = None
    position: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"
    atomic: bool = False

    def __post_init__(self) -> None:
        _frozen_metadata(self, self.metadata)


@dataclass(frozen=True, slots=True)
class Fact:
    """A piece of knowledge: one statement, with where it is from."""

    text: str
    id: str = ""
    source: str = ""
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"

    def __post_init__(self) -> None:
        _frozen_metadata(self, self.metadata)


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: what goes in and what should come out. Written by the developer, so trusted."""

    input: str
    output: str
    id: str = ""
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "trusted"

    def __post_init__(self) -> None:
        _frozen_metadata(self, self.metadata)

    def scored(self, score: float) -> Example:
        """Return the example with the score a selector gave it."""
        return replace(self, score=score)


class ToolSpec:
    """What a model is told about a tool: name, description, and its parameters as a JSON Schema object."""

    __slots__ = ("__dict__", "description", "name", "parameters", "strict")

    name: str
    description: str
    parameters: FrozenDict
    strict: bool

    def __init__(
        self,
        name: str,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        *,
        strict: bool = False,
    ) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "description", description)
        schema = {"type": "object", "properties": {}} if parameters is None else parameters
        put(self, "parameters", _freeze(schema, f"parameters of tool {name!r}"))
        put(self, "strict", strict)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ToolSpec is read-only: build a new one to change {name!r}")

    @cached_property
    def json(self) -> str:
        """The spec as one line of canonical JSON."""
        spec = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return json.dumps(spec, ensure_ascii=False, separators=(", ", ": "))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolSpec) and (self.json, self.strict) == (other.json, other.strict)

    def __hash__(self) -> int:
        return hash(self.json)

    def __repr__(self) -> str:
        return f"ToolSpec({self.name!r})"


K = TypeVar("K")
T = TypeVar("T")
_TOOLSETS: dict[int, tuple[tuple[ToolSpec, ...], dict[object, Any]]] = {}
_MOST_TOOLSETS = 1024


def per_toolset(tools: tuple[ToolSpec, ...], key: K, make: Callable[[tuple[ToolSpec, ...], K], T]) -> T:
    """Return what `make` says of a tuple of tool specs and a key, asking once for each."""
    if not tools:
        return make(tools, key)
    known = _TOOLSETS.get(id(tools))
    if known is None or known[0] is not tools:
        if len(_TOOLSETS) >= _MOST_TOOLSETS:
            _TOOLSETS.clear()
        known = _TOOLSETS[id(tools)] = (tools, {})
    value = known[1].get(key)
    if value is None:
        value = known[1][key] = make(tools, key)
    return value
