"""Reader of the chat template of a model: a `.jinja` file, `tokenizer_config.json`, or the folder with both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.limits import MAX_INPUT_BYTES
from agentkit_prompts.system.regular_files import is_folder, read_regular_text

_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_MORE = "additional_chat_templates"
_MAX_TOKEN = 200
_BRACKETS = frozenset("<>[]|\uff5c")
_SPECIAL = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_HTML = frozenset(
    f"<{end}{name}>"
    for end in ("", "/")
    for name in (
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6", "p"),
        *("blockquote", "ul", "ol", "li", "b", "i", "u", "s", "strong", "em", "code", "pre", "br", "hr", "sub", "sup"),
    )
)
"""Added tokens that are plain HTML: they are ordinary text, unless they are special."""


class TemplateFiles(NamedTuple):
    """Chat template of a model, read from its files."""

    file: str
    """Path of the file with the template to use."""
    templates: dict[str, str]
    """Source by name; the template to use is named `default`."""
    tokens: dict[str, str]
    """Special tokens by their names in templates, such as `bos_token`."""
    added: tuple[str, ...] = ()
    """All other tokens that the tokenizer never splits."""


def read_files(path: Path) -> TemplateFiles:
    """Read the chat template of a model, and its special tokens if a tokenizer configuration is next to it.

    A file `chat_template.jinja` next to the configuration takes precedence over the template inside it.

    Raises:
        ChatTemplateError: The file cannot be read or contains no chat template.
    """
    if is_folder(path):
        folder = path
        path = folder / _CONFIG
        if not path.is_file():
            path = folder / _TEMPLATE
        if not path.is_file():
            raise ChatTemplateError(
                f"{folder}: the folder has neither {_CONFIG} nor {_TEMPLATE}; pass the file of the template, "
                "or the name of a registered template",
                template=str(folder),
                name="chat_template",
            )
    if path.suffix == ".json":
        config = _config(path)
        templates = _in_config(config, path)
        file, beside = path, path.parent / _TEMPLATE
        if beside.is_file():
            file, templates["default"] = beside, _text(beside)
        # Further templates of the model, by the names of their files.
        for more in sorted((path.parent / _MORE).glob("*.jinja")):
            templates[more.stem] = _text(more)
        if not templates:
            raise ChatTemplateError(
                f"{path}: it has no chat_template, and its folder has no {_TEMPLATE}; pass the template, or use a "
                f"role-marker template",
                template=str(path),
                name="chat_template",
            )
        return TemplateFiles(str(file), templates, *_all_tokens(path, config))
    return TemplateFiles(str(path), {"default": _text(path)}, *_all_tokens(path, {}))


def _text(path: Path) -> str:
    try:
        return read_regular_text(path, MAX_INPUT_BYTES)
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"{path}: the chat template cannot be read: {error}", template=str(path)) from error


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ChatTemplateError):
            raise
        raise ChatTemplateError(f"{path}: not JSON: {error}", template=str(path)) from error
    if not isinstance(config, dict):
        raise ChatTemplateError(
            f"{path}: expected an object with chat_template, got {type(config).__name__}", template=str(path)
        )
    return config


def _in_config(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the templates in a configuration by name: one text, or texts by name, in one of two forms."""
    value = config.get("chat_template")
    if value is None:
        return {}
    rows = _rows(value)
    if not rows or not all(isinstance(row.name, str) and isinstance(row.source, str) for row in rows):
        raise ChatTemplateError(
            f"{path}: chat_template is neither text nor a list of objects with a name and a template, both text",
            template=str(path),
            name="chat_template",
        )
    templates = dict(rows)
    if len(templates) < len(rows):
        raise ChatTemplateError(
            f"{path}: chat_template has two templates with the same name; names must be unique",
            template=str(path),
            name="chat_template",
        )
    return templates


class _Row(NamedTuple):
    """A template in a configuration; both fields can have any type before they are checked."""

    name: Any
    source: Any


def _rows(value: object) -> list[_Row]:
    """Return the names and sources of templates in a value."""
    match value:
        case str():
            return [_Row("default", value)]
        case dict():
            return [_Row(name, source) for name, source in value.items()]
        case list() if all(isinstance(row, dict) for row in value):
            return [_Row(row.get("name"), row.get("template")) for row in value]
        case _:
            return []


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a configuration by their names in templates."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        content = _content(value)
        if name.endswith("_token") and isinstance(content, str):
            tokens[name] = content
    return tokens


def _all_tokens(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the tokens of the model of the file at `path`: the special tokens by name, and all others."""
    folder = path.parent
    if folder.name == _MORE:
        folder = folder.parent
    of_model: Mapping[str, Any] = {}
    if path.name != _CONFIG:
        of_model = _config_beside(folder, _CONFIG)
    added: dict[str, None] = {}
    if config:
        added |= _added(config, folder)
    added |= _added(of_model, folder)
    return {**_tokens(of_model), **_tokens(config)}, tuple(added)


def _config_beside(folder: Path, name: str) -> Mapping[str, Any]:
    """Return the object in a JSON file, empty if the file does not exist."""
    return _config(folder / name) if (folder / name).is_file() else {}


def _added(config: Mapping[str, Any], folder: Path) -> dict[str, None]:
    """Return the special and the added tokens of a tokenizer, from its configuration and the files next to it.

    A token that is not special counts if it is in brackets, unless it is plain HTML.
    """
    tokens: dict[str, None] = {}
    for source in (config, _config_beside(folder, "special_tokens_map.json")):
        tokens |= dict.fromkeys(_tokens(source).values())
        for name in _SPECIAL:
            tokens |= _contents(source.get(name), is_special=True)
    decoder = config.get("added_tokens_decoder")
    # `added_tokens_decoder` is newer than `tokenizer.json`, and has the same tokens.
    if isinstance(decoder, dict):
        tokens |= _contents(decoder)
    else:
        listed = _config_beside(folder, "tokenizer.json").get("added_tokens")
        if isinstance(listed, list):
            tokens |= _contents(listed)
    # In this file the tokens are the names.
    tokens |= _contents(list(_config_beside(folder, "added_tokens.json")))
    return tokens


def _contents(items: object, *, is_special: bool = False) -> dict[str, None]:
    """Return the tokens among texts, or objects with `content` and `special`, in a list or by name."""
    if isinstance(items, dict):
        items = list(items.values())
    if not isinstance(items, list):
        return {}
    return {_content(item): None for item in items if _is_token(item, is_special=is_special)}


def _is_token(item: object, *, is_special: bool) -> bool:
    content = _content(item)
    if not isinstance(content, str) or not content.strip() or len(content) > _MAX_TOKEN:
        return False
    return is_special or (isinstance(item, dict) and item.get("special") is True) or _is_bracketed(content)


def _content(item: object) -> Any:
    return item.get("content") if isinstance(item, dict) else item


def _is_bracketed(token: str) -> bool:
    return token not in _HTML and not _BRACKETS.isdisjoint(token) and len(token.strip()) > 2
