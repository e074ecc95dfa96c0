"""Where chat templates ship: a `.jinja` file, `tokenizer_config.json`, or the folder of a model that has both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.system.regular_files import is_folder, read_regular_text

__all__ = ["read_files"]

_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_MORE = "additional_chat_templates"
_MAX_BYTES = 64_000_000
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
"""Added tokens that are plain HTML, where they are not special: what holds them is text like any other."""


class TemplateFiles(NamedTuple):
    """What the files of a model say about its chat template."""

    file: str
    """Where the template to use is."""
    templates: dict[str, str]
    """Source by name; the one to use is called `default`."""
    tokens: dict[str, str]
    """Special tokens by the names templates read them under, such as `bos_token`."""
    added: tuple[str, ...] = ()
    """Every other token that the tokenizer takes out of a text as a whole."""


def read_files(path: Path) -> TemplateFiles:
    """Read the chat template of a model, and its special tokens where a tokenizer configuration lies beside it.

    A file `chat_template.jinja` beside the configuration goes before the template inside it.

    Raises:
        ChatTemplateError: The file cannot be read or holds no chat template.
    """
    if is_folder(path):
        path = path / _CONFIG if (path / _CONFIG).is_file() else path / _TEMPLATE
    if path.suffix == ".json":
        config = _config(path)
        templates = _in_config(config, path)
        file, beside = path, path.parent / _TEMPLATE
        if beside.is_file():
            file, templates["default"] = beside, _text(beside)
        for more in sorted((path.parent / _MORE).glob("*.jinja")):
            templates[more.stem] = _text(more)
        if not templates:
            raise ChatTemplateError(
                f"{path}: there is no chat_template in it and no {_TEMPLATE} beside it; give the template itself, "
                "or use a role-marker template",
                template=str(path),
                name="chat_template",
            )
        return TemplateFiles(str(file), templates, *_all_tokens(path, config))
    return TemplateFiles(str(path), {"default": _text(path)}, *_all_tokens(path, {}))


def _text(path: Path) -> str:
    try:
        return read_regular_text(path, _MAX_BYTES)
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
        raise ChatTemplateError(
            f"{path}: chat_template is {type(found).__name__}, expected text or a list of objects",
            template=str(path),
            name="chat_template",
        )
    templates = {name: source for name, source in named if isinstance(name, str) and isinstance(source, str)}
    if not templates or len(templates) < len(found):
        raise ChatTemplateError(
            f"{path}: chat_template is neither text nor a list of objects with a name and a template, both text",
            template=str(path),
            name="chat_template",
        )
    return templates


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            tokens[name] = content
    return tokens


def _all_tokens(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the tokens of the model that the file at `path` is of, whatever it is called: by name, and all others."""
    folder = path.parent.parent if path.parent.name == _MORE else path.parent
    beside = folder / _CONFIG
    of_model = _config(beside) if path.name != _CONFIG and beside.is_file() else {}
    added = dict.fromkeys((*_added(config, folder), *_added(of_model, folder)) if config else _added(of_model, folder))
    return {**_tokens(of_model), **_tokens(config)}, tuple(added)


def _added(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Return the special and the added tokens of a tokenizer: of its configuration, and of the files beside it.

    A token that is not special counts where it is in brackets, unless it is plain HTML.
    """
    sources = [config]
    if (beside := folder / "special_tokens_map.json").is_file():
        sources.append(_config(beside))
    found: dict[str, None] = {}
    for source in sources:
        found |= dict.fromkeys(_tokens(source).values())
        for name in _SPECIAL:
            listed = source.get(name)
            given = listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
            found |= dict.fromkeys(_contents(given, is_special=True))
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        found |= dict.fromkeys(_contents(decoder.values()))
    elif (beside := folder / "tokenizer.json").is_file():
        listed = _config(beside).get("added_tokens")
        found |= dict.fromkeys(_contents(listed if isinstance(listed, list) else ()))
    if (beside := folder / "added_tokens.json").is_file():
        found |= dict.fromkeys(_contents(_config(beside)))
    return tuple(found)


def _contents(given: Iterable[Any], *, is_special: bool = False) -> Iterator[str]:
    """Yield the tokens among texts, or objects with `content` and `special`."""
    for one in given:
        content = one.get("content") if isinstance(one, dict) else one
        if not isinstance(content, str) or not content.strip() or len(content) > _MAX_TOKEN:
            continue
        special = is_special or (isinstance(one, dict) and one.get("special") is True)
        if special or (content not in _HTML and not _BRACKETS.isdisjoint(content) and len(content.strip()) > 2):
            yield content
