"""Reader of YAML files that stores the line of each value for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest
from agentkit_prompts.system.regular_files import read_regular

__all__ = ["IMPORT", "Place", "Problem", "YamlFile", "listed", "read_yaml"]

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a file to a value."""
M = TypeVar("M", bound=BaseModel)

IMPORT = r"^\S[^:]*:[A-Za-z_][\w.]*$"
"""Pattern of the import path of an object."""
_FORMS = {IMPORT: "MODULE:NAME or FILE:NAME, such as ./tools.py:add"}
"""Expected forms of texts by their pattern."""
_MAX_BYTES = 1 << 20
_CONTAINER_ERRORS = frozenset({"dict_type", "list_type", "mapping_type", "model_attributes_type", "model_type"})
"""Errors of a value that is not the expected mapping or list. The value may contain a password, so errors hide it."""
_KINDS: Mapping[type, str] = {str: "text", Mapping: "a mapping", list: "a list", bool: "true or false", int: "a number"}
_MAX_LISTED = 200
_MAX_VALUE = 80
"""Maximum characters of an invalid value in an error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file."""

    file: str
    line: int | None
    """Line from 1; None for a problem of the whole file."""
    what: str
    key: str = ""
    """The invalid key, such as `tools[0].agent`; empty for a problem of the whole file."""

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}, line {self.line}: {self.what}"
        return f"{self.file}: {self.what}"


def listed(problems: Sequence[Problem]) -> str:
    """Return the first problems as text, one per line."""
    lines = [str(problem) for problem in problems[:_MAX_LISTED]]
    if len(problems) > _MAX_LISTED:
        lines.append(f"and {len(problems) - _MAX_LISTED} more")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class YamlFile:
    """Data of a file with the line of each value."""

    name: str
    """Name of the file in errors."""
    data: Any
    lines: Mapping[Place, int]
    text: str

    def line(self, place: Sequence[str | int]) -> int | None:
        """Return the line of a value; steps outside of the file, such as alternatives of a union, are skipped."""
        return self.lines.get(self._known(place))

    def problem(self, place: Sequence[str | int], message: str) -> Problem:
        """Return a problem of a value."""
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
        if key:
            message = f"{key}: {message}"
        return Problem(self.name, self.line(place), message, key)

    def validated(self, model: type[M], problems: list[Problem]) -> M | None:
        """Return the data as a model; add its problems to `problems` and return None if it is invalid."""
        if not isinstance(self.data, Mapping):
            keys = ", ".join(list(model.model_fields)[:4])
            problems.append(Problem(self.name, 1, f"expected keys with values, such as {keys}"))
            return None
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            texts_by_place: dict[tuple[Place, bool], list[str]] = {}
            hidden = _not_shown(model)
            hidden_places: set[Place] = set()
            for item in error.errors(include_url=False):
                place, text, is_value = self._of(item, model)
                texts_by_place.setdefault((place, is_value), []).append(text)
                if item["type"] in _CONTAINER_ERRORS or not hidden.isdisjoint(place):
                    hidden_places.add(place)
            invalid = []
            for (place, is_value), texts in texts_by_place.items():
                if is_value and any(other[: len(place)] == place != other for other, _ in texts_by_place):
                    # Another alternative of the union fits better: its problem is inside the value.
                    continue
                # A union has one error per alternative.
                message = " or ".join(dict.fromkeys(texts))
                got = ""
                if is_value:
                    got = f", got {_shown(self._at(place), place in hidden_places)}"
                invalid.append(self.problem(place, message + got))
            problems += sorted(invalid, key=lambda problem: problem.line or 0)
            return None

    def sound_part(self, model: type[M]) -> M | None:
        """Return invalid data without its invalid keys; None if these keys are required."""
        data: Mapping[Any, Any] = {}
        if isinstance(self.data, Mapping):
            data = self.data
        try:
            model.model_validate(data)
        except ValidationError as error:
            wrong = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
            data = {key: value for key, value in data.items() if key not in wrong}
        with suppress(ValidationError):
            return model.model_validate(data)
        return None

    def _of(self, error: ErrorDetails, model: type[BaseModel]) -> tuple[Place, str, bool]:
        """Return the place and the text of an error, and True if its message should contain the value."""
        place = self._known(error["loc"])
        if error["type"] == "extra_forbidden":
            return place, f"unknown key{nearest(str(place[-1]), _names(model, error['loc'][:-1]))}", False
        if error["type"] == "missing":
            return (*place, error["loc"][-1]), "is missing", False
        if (form := _FORMS.get(error.get("ctx", {}).get("pattern", ""))) is not None:
            return place, f"expected {form}", True
        text = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        text = re.sub(r" or instance of \w+$", "", text)
        # Validators of agent files raise whole messages; messages of pydantic name only the expected value.
        if error["type"] not in ("value_error", "assertion_error"):
            text = f"expected {text}"
        return place, text, True

    def _at(self, place: Place) -> Any:
        value = self.data
        for step in place:
            value = value[step]
        return value

    def _known(self, loc: Sequence[str | int]) -> Place:
        place: Place = ()
        for step in loc:
            if (*place, step) in self.lines:
                place = (*place, step)
        return place


def read_yaml(path: Path, problems: list[Problem]) -> YamlFile | None:
    """Read a file; add problems to `problems` and return None if it is invalid.

    Aliases, and tags of types other than the types of YAML, are refused.

    Args:
        path: The file.
        problems: List that receives the problems.
    """
    import yaml

    from agentkit_prompts.strict_yaml import StrictLoader

    name = path.as_posix()
    try:
        if path.is_dir():
            raise ValueError("it is a folder")
        text = read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        problems.append(Problem(name, None, "the file does not exist; check the path"))
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.append(Problem(name, line, "it is not UTF-8 text"))
        return None
    except (OSError, ValueError) as error:
        problems.append(Problem(name, None, f"cannot be read: {getattr(error, 'strerror', None) or error}"))
        return None
    lines: dict[Place, int] = {}
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        if root is None:
            problems.append(Problem(name, 1, "the file is empty"))
            return None
        twice: list[Problem] = []
        _note(root, (), lines, lambda key, line: twice.append(Problem(name, line, f"duplicate key {key!r:.80}")))
        if twice:
            problems += twice
            return None
        return YamlFile(name, loader.construct_document(root), lines, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        number = None
        if mark:
            number = mark.line + 1
        problems.append(Problem(name, number, f"not YAML: {error.problem or error.context}"))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(Problem(name, line, f"not YAML: {error.reason}"))
    except (ValueError, OverflowError, RecursionError) as error:
        problems.append(Problem(name, 1, f"not YAML: {error}"))
    return None


def _note(node: Any, place: Place, lines: dict[Place, int], twice: Callable[[Any, int], object]) -> None:
    """Store the line of each value, and call `twice` for duplicate keys."""
    lines.setdefault(place, node.start_mark.line + 1)
    if node.id == "mapping":
        for key, value in node.value:
            below, line = (*place, key.value if key.id == "scalar" else key.tag), key.start_mark.line + 1
            if below in lines:
                twice(key.value, line)
            lines[below] = line
            _note(value, below, lines, twice)
    elif node.id == "sequence":
        for at, value in enumerate(node.value):
            _note(value, (*place, at), lines, twice)


def _not_shown(model: type[BaseModel]) -> set[str]:
    """Return the keys of secrets, which are excluded from `repr` and from errors."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        if not field.repr:
            keys.add(field.alias or name)
        for inner in _models(field.annotation):
            keys |= _not_shown(inner)
    return keys


def _shown(value: Any, only_kind: bool) -> str:
    """Return an invalid value for an error; only its kind if the value may contain a secret."""
    if only_kind or isinstance(value, Mapping | list):
        return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), type(value).__name__)
    return brief(value, _MAX_VALUE)


def _names(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Return the valid keys at the place of an unknown key."""
    level: Any = model
    for step in loc:
        if isinstance(step, int):
            continue
        field = getattr(level, "model_fields", {}).get(step)
        if field is None:
            annotation = getattr(level, "annotation", level)
            if annotation and (tagged := _tagged(annotation, step)) is not None:
                level = tagged
            continue
        level = _models(field.annotation)
        level = level[0] if len(level) == 1 else field
    return [field.alias or name for name, field in getattr(level, "model_fields", {}).items()]


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


def _tagged(annotation: Any, tag: str | int) -> Any:
    """Return the model with the name `tag` in a union."""
    return next((model for model in _models(annotation) if model.__name__ == tag), None)
