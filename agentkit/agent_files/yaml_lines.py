"""Reader of YAML files that stores the line of each value for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest
from agentkit_prompts.system.regular_files import read_regular

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the root of a file to a value."""
M = TypeVar("M", bound=BaseModel)

IMPORT = r"^\S[^:]*:[A-Za-z_][\w.]*$"
"""Pattern of the import path of an object."""
_EXPECTED = {IMPORT: "MODULE:NAME or FILE:NAME, such as ./tools.py:add"}
"""Description of the expected text, by the pattern of the text."""
_MAX_BYTES = 1 << 20
"""Maximum bytes of a file."""
_CONTAINER_ERRORS = frozenset({"dict_type", "list_type", "mapping_type", "model_attributes_type", "model_type"})
"""Errors of a value that is not the expected mapping or list: it may contain a password, so that errors hide it."""
_KINDS: Mapping[type, str] = {str: "text", Mapping: "a mapping", list: "a list", bool: "true or false", int: "a number"}
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
            problems += sorted(self._problems_of(error, model), key=lambda problem: problem.line or 0)
            return None

    def _problems_of(self, error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
        """Yield one problem per invalid value."""
        texts_by_place: dict[tuple[Place, bool], list[str]] = {}
        secret_keys = _secret_keys(model)
        hidden_places: set[Place] = set()
        for details in error.errors(include_url=False):
            place, text, has_value = self._place_and_text(details, model)
            texts_by_place.setdefault((place, has_value), []).append(text)
            if details["type"] in _CONTAINER_ERRORS or not secret_keys.isdisjoint(place):
                hidden_places.add(place)
        for (place, has_value), texts in texts_by_place.items():
            # If a problem is inside the value, its alternative of the union fits better than the other alternatives.
            if has_value and any(other[: len(place)] == place != other for other, _ in texts_by_place):
                continue
            # A union has one error per alternative.
            message = " or ".join(dict.fromkeys(texts))
            if has_value:
                message += f", got {_value_text(self._value_at(place), only_kind=place in hidden_places)}"
            yield self.problem(place, message)

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

    def _place_and_text(self, error: ErrorDetails, model: type[BaseModel]) -> tuple[Place, str, bool]:
        """Return the place and the text of a pydantic error, and True if the message should contain the value."""
        place = self._known_place(error["loc"])
        if error["type"] == "extra_forbidden":
            return place, f"unknown key{nearest(str(place[-1]), _valid_keys(model, error['loc'][:-1]))}", False
        if error["type"] == "missing":
            return (*place, error["loc"][-1]), "is missing", False
        if error["type"] == "string_too_short" and error.get("ctx", {}).get("min_length") == 1:
            # A shell that writes a file writes nothing for an unset variable.
            return place, "is empty: expected text; if a shell wrote the file, check that its variables are set", False
        if (expected := _EXPECTED.get(error.get("ctx", {}).get("pattern", ""))) is not None:
            return place, f"expected {expected}", True
        text = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        text = re.sub(r" or instance of \w+$", "", text)
        # Validators of agent files raise complete messages; messages of pydantic name only the expected value.
        if error["type"] not in ("value_error", "assertion_error"):
            text = f"expected {text}"
        return place, text, True

    def _value_at(self, place: Place) -> Any:
        value = self.data
        for step in place:
            value = value[step]
        return value

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
    if only_kind or isinstance(value, Mapping | list):
        return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), type(value).__name__)
    return brief(value, _MAX_VALUE)


def _valid_keys(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Return the valid keys next to an unknown key; `loc` is the pydantic location of the mapping that has the key."""
    # A model, or a field whose type is a union of models until a step names the model.
    level: Any = model
    for step in loc:
        if isinstance(step, int):
            continue
        field = getattr(level, "model_fields", {}).get(step)
        if field is None:
            level = _model_named(getattr(level, "annotation", level), step) or level
            continue
        models = _models(field.annotation)
        level = field
        if len(models) == 1:
            level = models[0]
    return [field.alias or name for name, field in getattr(level, "model_fields", {}).items()]


def _models(annotation: Any) -> list[Any]:
    """Return the models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


def _model_named(annotation: Any, name: str | int) -> Any:
    """Return the model with a class name in a type annotation, or None."""
    return next((model for model in _models(annotation) if model.__name__ == name), None)
