"""Reading of front matter: YAML between two lines of three dashes at the start of a file, and the text after it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.limits import MAX_LISTED

_OPENING = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSING = re.compile(r"^---[ \t]*$\n?", re.MULTILINE)
_MAX_CHARACTERS = 1 << 16
_TEXTS = frozenset({"locale", "version", "name"})
"""Keys whose value is not parsed as YAML: `version: 1.10` is the text `1.10`, not the number 1.1."""


class Fault(NamedTuple):
    """Problem of the front matter: its line and key, None if unknown, and the text of the error."""

    line: int | None
    key: str | None
    text: str


class FrontKeys(NamedTuple):
    """Values of the keys of front matter, and their lines in the file."""

    values: dict[str, Any]
    lines: dict[str, int]


class FrontParts(NamedTuple):
    """A text split into its front matter and its body."""

    front: str
    """YAML text; it starts in line 2 of the file."""
    body: str
    first_line: int
    """Line of the file at which the body starts, counted from 1."""


def split_front_matter(text: str, faults: list[Fault]) -> FrontParts | None:
    """Split a text; return None if it has no front matter, or, with a fault, if the front matter has no end."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        faults.append(Fault(1, None, "the front matter has no end: add a line of --- after it"))
        return None
    first_line = text.count("\n", 0, closing.end()) + 1
    return FrontParts(text[opening.end() : closing.start()], text[closing.end() :], first_line)


def errors_of(file: str, faults: list[Fault]) -> list[TemplateError]:
    """Return the first `MAX_LISTED` faults of a file as errors, in the order of lines, and the number of the others."""
    faults.sort(key=lambda fault: fault.line or 0)
    errors = [TemplateError(fault.text, file=file, line=fault.line, name=fault.key) for fault in faults[:MAX_LISTED]]
    if len(faults) > MAX_LISTED:
        errors.append(TemplateError(f"the front matter has {len(faults) - MAX_LISTED:,} more problems", file=file))
    return errors


def read_keys(text: str, faults: list[Fault]) -> FrontKeys:
    """Return the keys of front matter with their values and lines, and add the faults of the YAML text."""
    import yaml

    from agentkit_prompts.strict_yaml import StrictLoader

    keys = FrontKeys({}, {})
    if len(text) > _MAX_CHARACTERS:
        message = f"the front matter has {len(text):,} characters, at most {_MAX_CHARACTERS:,} are read"
        faults.append(Fault(1, None, message))
        return keys
    # The front matter starts in line 2 of the file, and YAML counts lines from 0.
    try:
        loader = StrictLoader(text)
        root = loader.get_single_node()
        if isinstance(root, yaml.MappingNode):
            _add_keys(loader, root, keys, faults)
        elif root is not None:
            faults.append(Fault(2, None, "the front matter must be keys with values, such as `name: greeting`"))
    except yaml.YAMLError as error:
        line, reason = _place_in_yaml(text, error)
        faults.append(Fault(line, None, f"the front matter cannot be read: {reason}"))
    return keys


def _place_in_yaml(text: str, error: Exception) -> tuple[int | None, str]:
    """Return the line of a YAML error in the file, None if unknown, and the reason."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = None
        if mark:
            line = mark.line + 2
        reason = f"{error.problem or error.context}"
        if "mapping values" in reason:
            reason += "; quote a value that contains a colon"
        return line, reason
    if isinstance(error, yaml.reader.ReaderError):
        return text.count("\n", 0, error.position) + 2, f"{error.reason} ({chr(error.character)!r})"
    return 2, str(error)


def _add_keys(loader: Any, root: Any, keys: FrontKeys, faults: list[Fault]) -> None:
    """Read the entries of the root node one by one, because the loader would accept a key twice and drop the lines."""
    import yaml

    for key, value in root.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            faults.append(Fault(line, None, "a key must be text"))
        elif key.value in keys.lines:
            faults.append(Fault(line, key.value, f"the key {key.value!r} is duplicated"))
        else:
            keys.lines[key.value] = line
            if key.value in _TEXTS and isinstance(value, yaml.ScalarNode):
                keys.values[key.value] = value.value
            else:
                keys.values[key.value] = loader.construct_object(value, deep=True)
