"""Chat template in a file: fields that override a registered template, or define a new template."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from agentkit_prompts.chat_templates.base_template import check_template_fields
from agentkit_prompts.chat_templates.protocol import FIELDS_ELSEWHERE, Capability, ChatTemplate
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.names import nearest, reject_unknown_fields
from agentkit_prompts.system.regular_files import read_regular_text


@reject_unknown_fields(ChatTemplateError, FIELDS_ELSEWHERE)
@dataclass(frozen=True, slots=True)
class ChatTemplateConfig:
    """Fields of the JSON file of LMDeploy for a chat template.

    `model_name` is the name of a registered template, whose fields are overridden by all fields that are not None, or a
    new name for a role-marker template, which is not registered and requires `user` or `assistant`. Without a name, the
    template fits `model_path`.
    """

    model_name: str | None = None
    model_path: str | None = None
    """Name or path of the model, which selects the template without `model_name`."""
    system: str | None = None
    meta_instruction: str | None = None
    eosys: str | None = None
    user: str | None = None
    eoh: str | None = None
    assistant: str | None = None
    eoa: str | None = None
    tool: str | None = None
    eotool: str | None = None
    separator: str | None = None
    capability: Capability | None = None
    stop_words: list[str] | None = None

    @classmethod
    def from_json(cls, source: str | PathLike[str]) -> ChatTemplateConfig:
        """Read a file, or JSON text.

        Raises:
            ChatTemplateError: The file does not exist, or contains no JSON object with these fields.
        """
        text, where = _read(source)
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ChatTemplateError(f"{where}: is not JSON ({error})", template=where) from error
        if not isinstance(data, dict):
            raise ChatTemplateError(f"{where}: expected a JSON object, got {type(data).__name__}", template=where)
        check_template_fields(where, data, {field.name: str(field.type) for field in fields(cls)}, FIELDS_ELSEWHERE)
        return cls(**data)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Return the fields as JSON text, None as null; with `path` also write it there."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=4)
        if path is not None:
            Path(path).write_text(text, "utf-8")
        return text

    @property
    def chat_template(self) -> ChatTemplate:
        """New template with these fields.

        Raises:
            ChatTemplateError: The name is unknown and both `user` and `assistant` are missing, or a field is unknown.
        """
        settings = {name: value for name, value in asdict(self).items() if value is not None}
        settings.pop("model_path", None)
        name = settings.pop("model_name", None)
        if name is None and self.model_path is not None:
            name = CHAT_TEMPLATES.best_match(self.model_path)
        if name is not None and name in CHAT_TEMPLATES:
            return CHAT_TEMPLATES.get(name)(**settings)
        # Without a marker the name is probably misspelt.
        if self.user is None and self.assistant is None:
            near = nearest(str(self.model_name), CHAT_TEMPLATES)
            raise ChatTemplateError(
                f"model_name {self.model_name!r} is not a registered template{near}. "
                f"A new template requires the markers `user` and `assistant`",
                name=self.model_name,
            )
        return RoleMarkerTemplate(**settings)


def _read(source: str | PathLike[str]) -> tuple[str, str]:
    """Return the text, and its name in errors. Text that starts with a bracket is JSON, other text is a path."""
    if isinstance(source, str) and source.lstrip().startswith(("{", "[")):
        return source, "the JSON text"
    try:
        return read_regular_text(source), str(source)
    except (OSError, ValueError, TypeError) as error:
        raise ChatTemplateError(
            f"{str(source)[:200]!r}: cannot be read ({error}); pass a path or a JSON object as text",
            template=str(source),
        ) from error
