"""Replacement of values at the top of a YAML file, with comments and other lines unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from agentkit.improve.improve_errors import ImproveError
from agentkit_prompts.strict_yaml import StrictLoader

_WIDTH = 1_000_000
"""Maximum length of a line: long texts are not folded."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def with_values(name: str, text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a YAML file with other values of its keys.

    Args:
        name: Name of the file in errors.
        text: The text, whose lines end in LF.
        values: Values by the keys at the top of the file.

    Raises:
        ImproveError: The file has another form than lines of keys.
    """
    expected = values_of(name, text)
    for key, value in values.items():
        expected[key] = value
        dumped = yaml.dump({key: value}, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH)
        text = _replaced(text, key, dumped)
        if not _has_values(text, expected):
            raise ImproveError(f"{name}: {key} cannot be replaced: write each key on a separate line", path=name)
    return text


def _has_values(text: str, expected: Mapping[str, Any]) -> bool:
    try:
        return values_of("", text) == expected
    except ImproveError:
        return False


def values_of(name: str, text: str) -> dict[str, Any]:
    """Return the values of a YAML file, read as `load_agent` reads them.

    Raises:
        ImproveError: The text is no YAML with keys at its top.
    """
    try:
        data = yaml.load(text, StrictLoader)
    except yaml.YAMLError as error:
        raise ImproveError(f"{name}: invalid YAML: {error}", path=name) from error
    if not isinstance(data, dict):
        raise ImproveError(f"{name}: expected keys with values", path=name)
    return data


def _replaced(text: str, key: str, dumped: str) -> str:
    """Replace the lines of a key, or add them at the end."""
    lines = text.splitlines(keepends=True)
    root: Any = yaml.compose(text, StrictLoader)
    entry = next(((name, value) for name, value in root.value if name.value == key), None)
    if entry is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return "".join([*lines, dumped])
    name, value = entry
    start, end = name.start_mark.line, value.end_mark.line
    if value.end_mark.column:
        end += 1
    # Empty lines and comments after a block belong to the next key.
    while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
        end -= 1
    return "".join([*lines[:start], dumped, *lines[end:]])
