"""Front matter: what a prompt file says about itself, in YAML between two lines of three dashes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.tree.layers import PLACES
from agentkit_prompts.tree.prompt import Volatility

__all__ = ["LOCALE", "Source", "read_source"]

LOCALE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
"""What a locale looks like."""

_OPENING = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSING = re.compile(r"^---[ \t]*$\n?", re.MULTILINE)
_MAX_CHARACTERS = 1 << 16
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Source:
    """One prompt file, read: what its front matter says, and the text below it."""

    file: str
    """The file as errors name it."""
    body: str
    first_line: int
    """Line of the file at which the body starts, counted from 1."""
    says: Mapping[str, Any] = field(default_factory=dict)
    """Key of the front matter -> value, of the right type."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Key of the front matter -> line of the file."""


def read_source(file: str, text: str, problems: list[TemplateError]) -> Source | None:
    """Cut `text` into front matter and body; what is wrong with the former is added to `problems`."""
    opening = _OPENING.match(text)
    if opening is None:
        return Source(file, text, 1)
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        what = "the front matter does not end: put a line of --- behind it"
        problems.append(TemplateError(what, file=file, line=1))
        return None
    yaml = text[opening.end() : closing.start()]
    before = len(problems)
    says, lines = _read_yaml(file, yaml, problems)
    if len(problems) > before:
        return None
    return Source(file, text[closing.end() :], text.count("\n", 0, closing.end()) + 1, says, lines)


def _read_yaml(file: str, text: str, problems: list[TemplateError]) -> tuple[dict[str, Any], dict[str, int]]:
    import yaml

    says: dict[str, Any] = {}
    lines: dict[str, int] = {}

    def wrong(what: str, line: int | None) -> None:
        problems.append(TemplateError(what, file=file, line=line))

    if len(text) > _MAX_CHARACTERS:
        wrong(f"the front matter has {len(text):,} characters, at most {_MAX_CHARACTERS:,} are read", 1)
        return says, lines
    try:
        loader = _loader_class()(text)
        root = loader.get_single_node()
        if root is None:
            return says, lines
        if not isinstance(root, yaml.MappingNode):
            wrong("the front matter must be keys with values, such as `role: system`", 2)
            return says, lines
        for key, value in root.value:
            line = key.start_mark.line + 2
            check = _KEYS.get(key.value) if isinstance(key, yaml.ScalarNode) else None
            if check is None:
                wrong(f"unknown key {_shown(key)}", line)
            elif key.value in lines:
                wrong(f"the key {key.value!r} is here twice", line)
            else:
                lines[key.value] = line
                as_text = key.value in _TEXTS and isinstance(value, yaml.ScalarNode)
                says[key.value] = value.value if as_text else loader.construct_object(value, deep=True)
                if what := check(says[key.value]):
                    wrong(f"{key.value}: {what}", line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        wrong(f"the front matter is no YAML: {error.problem or error.context}", mark.line + 2 if mark else None)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 2
        wrong(f"the front matter is no YAML: {error.reason} ({chr(error.character)!r})", line)
    except RecursionError:
        wrong("the front matter nests too deeply", 2)
    except (ValueError, OverflowError) as error:  # such as an integer of 5,000 digits
        wrong(f"the front matter cannot be read: {error}", 2)
    return says, lines


def _shown(key: Any) -> str:
    if not isinstance(key.value, str):
        return "that is not text"
    near = difflib.get_close_matches(key.value, _KEYS, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(_KEYS)}"
    return f"{key.value!r}{hint}"


@cache
def _loader_class() -> Any:
    """Make a safe loader in which `no` is text, dates are text, keys come once, and nothing is written by alias."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.get_event()  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(None, None, "aliases are not allowed: write it out", event.start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) < len(node.value):
                what = "a key is here twice, with one value lost"
                raise yaml.MarkedYAMLError(None, None, what, node.start_mark)
            return mapping

    dropped = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")
    )
    return Loader


def _one_of(*words: str) -> Callable[[object], str | None]:
    return lambda value: None if value in words else f"expected one of {', '.join(words)}, got {value!r}"


def _is_text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else f"expected text, got {value!r}"


def _is_locale(value: object) -> str | None:
    if isinstance(value, str) and LOCALE.fullmatch(value):
        return None
    return f"expected a language tag such as en or zh-CN, got {value!r}"


def _is_order(value: object) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return None
    return f"expected a number, got {value!r}"


def _is_flag(value: object) -> str | None:
    return None if isinstance(value, bool) else f"expected true or false, got {value!r}"


def _is_schema(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return f"expected a JSON Schema object, got {type(value).__name__}"
    return _json_fault(value, 0)


def _json_fault(value: object, depth: int) -> str | None:
    if depth > _MAX_DEPTH:
        return f"nests deeper than {_MAX_DEPTH} levels"
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            return f"keys must be text: put {odd[0]!r} in quotes"
        return next((fault for item in value.values() if (fault := _json_fault(item, depth + 1))), None)
    if isinstance(value, list):
        return next((fault for item in value if (fault := _json_fault(item, depth + 1))), None)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return None
    return f"{value!r} is no JSON value"


_SIZE: Mapping[str, tuple[type, ...]] = {
    "min": (int,),
    "target": (int, type(None)),
    "max": (int, type(None)),
    "priority": (int,),
    "cut": (str,),
    "flex": (int, float),
}


def _is_budget(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return f"expected keys such as `max: 500`, got {value!r}"
    for name, number in value.items():
        kinds = _SIZE.get(name) if isinstance(name, str) else None
        if kinds is None:
            return f"unknown key {name!r}; there are {', '.join(_SIZE)}"
        if not isinstance(number, kinds) or isinstance(number, bool):
            kind = {int: "a whole number", str: "a word", float: "a number"}[
                kinds[-1] if kinds[-1] is float else kinds[0]
            ]
            return f"{name}: expected {kind}, got {number!r}"
    return None


_KEYS: Mapping[str, Callable[[object], str | None]] = {
    "schema": _is_schema,
    "role": _one_of(*PLACES, "none"),
    "kind": _one_of("text", "info", "input", "conversation", "memo", "knowledge", "tools", "examples"),
    "budget": _is_budget,
    "volatility": _one_of(*get_args(Volatility)),
    "fence": _is_flag,
    "locale": _is_locale,
    "version": _is_text,
    "name": _is_text,
    "order": _is_order,
    "engine": _one_of("jinja", "fstring"),
}
"""Key -> function that says what is wrong with its value."""
_TEXTS = frozenset({"locale", "version", "name"})
"""Keys whose value is taken as it is written: `version: 1.10` is not the number 1.1."""
