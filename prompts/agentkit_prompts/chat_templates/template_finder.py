"""Search for a chat template by name, model or file."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from agentkit_prompts.chat_templates.base_template import BaseTemplate, check_parameters
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.chat_templates.template_config import ChatTemplateConfig
from agentkit_prompts.errors import ChatTemplateError, check_types
from agentkit_prompts.limits import MAX_CACHED

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
from agentkit_prompts.system.regular_files import read_regular_text

GivenTemplate: TypeAlias = Union["ChatTemplate", ChatTemplateConfig, Path, str]
"""A chat template, the name of a registered template or of a model, a file, or the folder of a model."""

_CONFIG = "tokenizer_config.json"
_MEMBERS = ("render", "control_tokens", "stop_words")
"""Members of a `ChatTemplate`."""
_BINARY = (".gguf", ".safetensors", ".bin", ".pt")


def find_chat_template(given: GivenTemplate | None, model: str = "") -> ChatTemplate:
    """Return the chat template.

    Args:
        given: A template; the name of a registered template or of its model; a file (a Jinja template, a
            `tokenizer_config.json`, or the fields of a `ChatTemplateConfig` as JSON); or the folder of a model. None
            selects the template that fits `model`.
        model: Name or path of the model.

    Raises:
        ChatTemplateError: The template is unknown or cannot be read; lists valid values.
    """
    check_types(ChatTemplateError, "chat_template", model=(model, str, "the name or path of a model"))
    match given:
        case None:
            return _of_model(model, f"chat_template: no known template fits the model {model!r:.100}")
        case ChatTemplateConfig():
            return given.chat_template
        case Path():
            return _of_path(given)
        case str():
            return _named(given)
        case _:
            return _checked(given)


def _checked(given: ChatTemplate) -> ChatTemplate:
    # Look at the class first, because a property of the instance can be slow.
    missing = [name for name in _MEMBERS if not hasattr(type(given), name) and not hasattr(given, name)]
    if isinstance(given, type) or missing:
        received = repr(given)[:80]
        if isinstance(given, type):
            received = f"the class {given.__name__}, pass an instance"
        elif len(missing) < len(_MEMBERS):
            received = f"{type(given).__name__} without {', '.join(missing)}"
        raise ChatTemplateError(
            "expected a chat template (with `render`, `control_tokens` and `stop_words`), the name of a registered "
            f"template or of a model, a ChatTemplateConfig or a file, got {received}",
            name="chat_template",
        )
    _check_render(type(given))
    # A text is a sequence of its characters: each character would end a reply or be a token.
    for name in ("stop_words", "control_tokens"):
        # A property is not read, because it can be slow.
        if hasattr(getattr(type(given), name, None), "__get__"):
            continue
        value = getattr(given, name)
        if isinstance(value, str):
            raise ChatTemplateError(
                f"{type(given).__name__}: {name}: expected a list of texts, got {value!r:.80}", name=name
            )
    return given


@lru_cache(maxsize=MAX_CACHED)
def _check_render(template_class: type) -> None:
    render = getattr(template_class, "render", None)
    check_parameters(render, BaseTemplate.render, f"{template_class.__name__}.render")


def _named(name: str) -> ChatTemplate:
    if name in CHAT_TEMPLATES:
        return CHAT_TEMPLATES.get(name)()
    # A common mistake is the source of a template.
    if "{%" in name or "{{" in name:
        raise ChatTemplateError(
            f"chat_template: {name[:40]!r}... is the text of a template, expected a name or a file: pass "
            f"JinjaChatTemplate(text) of agentkit.prompts.chat_templates",
            name="chat_template",
        )
    if _exists(name):
        return _of_path(Path(name))
    return _of_model(
        name, f"unknown chat template {name!r:.100}; it is not a file, and no template fits a model with that name"
    )


def _of_model(model: str, problem: str) -> ChatTemplate:
    """Return the template that fits a model: the template in its folder, or a registered template."""
    if model and _exists(model):
        return _of_path(Path(model))
    return CHAT_TEMPLATES.get(CHAT_TEMPLATES.fitting(model, problem))()


def _of_path(path: Path) -> ChatTemplate:
    from agentkit_prompts.chat_templates.jinja.chat_template import JinjaChatTemplate

    if path.suffix.lower() in _BINARY:
        raise ChatTemplateError(
            f"{path}: contains the weights of a model; pass the file of its chat template, or a name",
            template=str(path),
        )
    if path.suffix.lower() == ".json" and path.name != _CONFIG and not _has_template(path):
        template = ChatTemplateConfig.from_json(path).chat_template
        if isinstance(template, BaseTemplate):
            template.label = str(path)
        return template
    try:
        return cast("ChatTemplate", JinjaChatTemplate.from_file(path))
    except ChatTemplateError:
        name = _name_of_folder(path)
        if name is None:
            raise
        return CHAT_TEMPLATES.get(name)()


def _name_of_folder(path: Path) -> str | None:
    """Return the registered template for the folder of a model, because folders of old models contain no template."""
    if not path.is_dir():
        return None
    fit = CHAT_TEMPLATES.closest(str(path.resolve()))
    if fit is None or fit.other_words:
        return None
    return fit.name


def _has_template(path: Path) -> bool:
    try:
        return "chat_template" in json.loads(read_regular_text(path))
    except (OSError, ValueError, TypeError, RecursionError):
        # The next reader of the file reports the error.
        return False


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long, or an invalid character
        return False
