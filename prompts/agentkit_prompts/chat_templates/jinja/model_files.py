"""Where chat templates ship: a `.jinja` file, `tokenizer_config.json`, or the folder of a model that has both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentkit_prompts.errors import ChatTemplateError

__all__ = ["TemplateFiles", "read_files"]

_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_MORE = "additional_chat_templates"
_MAX_BYTES = 64_000_000


class TemplateFiles(NamedTuple):
    """What the files of a model say about its chat template."""

    file: str
    templates: dict[str, str]
    """Source by name; the one to use is called `default`."""
    tokens: dict[str, str]
    """Special tokens by the names templates read them under, such as `bos_token`."""


def read_files(path: Path) -> TemplateFiles:
    """Read the chat template of a model, and its special tokens where a tokenizer configuration lies beside it.

    A file `chat_template.jinja` beside the configuration goes before the template inside it.

    Raises:
        ChatTemplateError: The file cannot be read or holds no chat template.
    """
    if path.is_dir():
        path = path / _CONFIG if (path / _CONFIG).is_file() else path / _TEMPLATE
    if path.suffix == ".json":
        config = _config(path)
        templates = _in_config(config, path)
        beside = path.parent / _TEMPLATE
        if beside.is_file():
            templates["default"] = _text(beside)
        for more in sorted((path.parent / _MORE).glob("*.jinja")):
            templates[more.stem] = _text(more)
        if not templates:
            raise ChatTemplateError(
                f"{path}: there is no chat_template in it and no {_TEMPLATE} beside it; give the template itself, "
                "or use a role-marker template"
            )
        return TemplateFiles(str(path), templates, _tokens(config))
    beside = path.parent / _CONFIG
    tokens = _tokens(_config(beside)) if path.name == _TEMPLATE and beside.is_file() else {}
    return TemplateFiles(str(path), {"default": _text(path)}, tokens)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ChatTemplateError(f"{path}: larger than {_MAX_BYTES:,} bytes, which no chat template is")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatTemplateError(f"{path}: the chat template cannot be read: {error}") from error


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ChatTemplateError):
            raise
        raise ChatTemplateError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ChatTemplateError(f"{path}: expected an object with chat_template, got {type(config).__name__}")
    return config


def _in_config(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    found = config.get("chat_template")
    if found is None:
        return {}
    if isinstance(found, str):
        return {"default": found}
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        named = [(one.get("name"), one.get("template")) for one in found]
    elif isinstance(found, dict):
        named = list(found.items())
    else:
        raise ChatTemplateError(f"{path}: chat_template is {type(found).__name__}, expected text or a list of objects")
    templates = {name: source for name, source in named if isinstance(name, str) and isinstance(source, str)}
    if not templates or len(templates) < len(found):
        raise ChatTemplateError(
            f"{path}: chat_template is neither text nor a list of objects with a name and a template, both text"
        )
    return templates


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            tokens[name] = content
    return tokens
