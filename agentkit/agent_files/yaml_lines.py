"""Reader of YAML files that stores the line of each value for error messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from agentkit_prompts.errors import brief
from agentkit_prompts.invalid_values import invalid_values, place_of
from agentkit_prompts.system.regular_files import read_regular

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a file to a value."""
M = TypeVar("M", bound=BaseModel)

IMPORT = r"^\S[^:]*:[A-Za-z_][\w.]*$"
"""Pattern of the import path of an object."""
_WORDS = {
    IMPORT: "MODULE:NAME or FILE:NAME, such as ./tools.py:add",
    "extra_forbidden": "unknown key",
    "True": "true",
    # A shell that writes a file writes nothing for an unset variable.
    "string_too_short": "text, but it is empty; if a shell wrote the file, check that its variables are set",
}
"""Expected values of a file."""
_MAX_BYTES = 1 << 20
"""Maximum bytes of a file."""
_CONTAINER_ERRORS = frozenset(
    {"dict_type", "list_type", "mapping_type", "memory", "model_attributes_type", "model_type"}
)
"""Errors of a value that is not the expected mapping or list: it may contain a password, so that errors hide it."""
_KINDS: Mapping[type, str] = {str: "text", Mapping: "a mapping", list: "a list", int: "a number"}
"""Names of types in errors."""
_MAX_LISTED = 200
"""Maximum number of problems that an error lists."""
_MAX_VALUE = 80
"""Maximum characters of an invalid value in an error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file."""

    file: str
    line: int | None
    """Line from 1; None for a problem of the whole file."""
    message: str
    key: str = ""
    """The invalid key, such as `tools[0].agent`; empty for a problem of the whole file."""

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}, line {self.line}: {self.message}"
        return f"{self.file}: {self.message}"


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
        """Return the line of a value, or of the innermost known value around it; None without any line.

        Keys that are not in the file are skipped, such as the names of alternatives of a union in pydantic errors.
        """
        return self.lines.get(self._known_place(place))

    def problem(self, place: Sequence[str | int], message: str, inner: str = "") -> Problem:
        """Return a problem of a value; `inner` is the text of its place inside the value."""
        key = place_of(place) + inner
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
            problems += sorted(self._problems_of(error, model), key=lambda problem: problem.line or 0)
            return None

    def _problems_of(self, error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
        """Yield one problem per invalid value."""
        secret_keys = _secret_keys(model)
        for value in invalid_values(error, self.data, model, _WORDS):
            only_kind = not _CONTAINER_ERRORS.isdisjoint(value.kinds) or not secret_keys.isdisjoint(value.path)
            yield self.problem(value.path, value.message(partial(_value_text, only_kind=only_kind)), value.inner)

    def sound_part(self, model: type[M]) -> M | None:
        """Return the data as a model without the invalid keys at the top; None if one of these keys is required."""
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

    def _known_place(self, loc: Sequence[str | int]) -> Place:
        place: Place = ()
        for step in loc:
            if (*place, step) in self.lines:
                place = (*place, step)
        return place


def read_yaml(path: Path, problems: list[Problem]) -> YamlFile | None:
    """Return the data and lines of a YAML file; None, with problems in `problems`, if the file is invalid.

    Aliases, and tags of types other than the types of YAML, are refused.
    """
    text = _read_text(path, problems)
    if text is None:
        return None
    return _parsed(path.as_posix(), text, problems)


def _read_text(path: Path, problems: list[Problem]) -> str | None:
    name = path.as_posix()
    try:
        if path.is_dir():
            raise ValueError("it is a folder")
        return read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        problems.append(Problem(name, None, "the file does not exist; check the path"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.append(Problem(name, line, "it is not UTF-8 text"))
    except (OSError, ValueError) as error:
        problems.append(Problem(name, None, f"cannot be read: {getattr(error, 'strerror', None) or error}"))
    return None


def _parsed(name: str, text: str, problems: list[Problem]) -> YamlFile | None:
    import yaml

    from agentkit_prompts.strict_yaml import StrictLoader

    lines: dict[Place, int] = {}
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        if root is None:
            problems.append(Problem(name, 1, "the file is empty"))
            return None
        duplicates: list[Problem] = []
        _store_lines(
            root, (), lines, lambda key, line: duplicates.append(Problem(name, line, f"duplicate key {key!r:.80}"))
        )
        if duplicates:
            problems += duplicates
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


def _store_lines(node: Any, place: Place, lines: dict[Place, int], on_duplicate: Callable[[Any, int], object]) -> None:
    """Store the line of each value, and call `on_duplicate` with each duplicate key and its line."""
    lines.setdefault(place, node.start_mark.line + 1)
    if node.id == "mapping":
        for key, value in node.value:
            name = key.tag
            if key.id == "scalar":
                name = key.value
            inner_place, line = (*place, name), key.start_mark.line + 1
            if inner_place in lines:
                on_duplicate(key.value, line)
            lines[inner_place] = line
            _store_lines(value, inner_place, lines, on_duplicate)
    elif node.id == "sequence":
        for index, value in enumerate(node.value):
            _store_lines(value, (*place, index), lines, on_duplicate)


def _secret_keys(model: type[BaseModel]) -> set[str]:
    """Return the keys of secrets: fields that are excluded from `repr`, and therefore from errors."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        if not field.repr:
            keys.add(field.alias or name)
        for inner in _models(field.annotation):
            keys |= _secret_keys(inner)
    return keys


def _value_text(value: Any, *, only_kind: bool) -> str:
    """Return an invalid value for an error; only its type if the value may contain a secret."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    # An address can contain a password.
    if only_kind or isinstance(value, Mapping | list) or "://" in str(value):
        return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), type(value).__name__)
    return brief(value, _MAX_VALUE)


def _models(annotation: Any) -> list[Any]:
    """Return the models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]
