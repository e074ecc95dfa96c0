"""Replacement of values at the top of a YAML file, with comments and other lines unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from agentkit.improve.improve_errors import ImproveError

__all__ = ["with_values"]

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
        text: The text.
        values: Values by the keys at the top of the file.

    Raises:
        ImproveError: The file has another form than lines of keys.
    """
    expected = {**_read(name, text), **values}
    for key, value in values.items():
        dumped = yaml.dump({key: value}, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH)
        text = _replaced(text, key, dumped)
    if _read(name, text) != expected:
        keys = ", ".join(values)
        raise ImproveError(f"{name}: {keys} cannot be replaced: write each key on a separate line", path=name)
    return text


def _read(name: str, text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ImproveError(f"{name}: the changed file would be invalid YAML: {error}", path=name) from error
    if not isinstance(data, dict):
        raise ImproveError(f"{name}: expected keys with values", path=name)
    return data


def _replaced(text: str, key: str, dumped: str) -> str:
    """Replace the lines of a key, or add them at the end."""
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if re.match(rf"{key}\s*:", line)), None)
    if start is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return "".join([*lines, dumped])
    end = start + 1
    while end < len(lines) and re.match(r"\s|- |-$", lines[end]):
        end += 1
    # Empty lines belong to the next key.
    while not lines[end - 1].strip():
        end -= 1
    return "".join([*lines[:start], dumped, *lines[end:]])
