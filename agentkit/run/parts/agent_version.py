"""`AgentVersion`: versions of an agent and of its parts, derived from the content of its requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel

from agentkit.run.parts.agent_tools import AgentTools
from agentkit.run.parts.chain import Chain
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.prompt import BasePrompt

_PLAIN = (str, int, float)
"""Types that are JSON data unchanged."""
_TOOLS = "tools"
"""Prefix of the names of tools."""


class PromptPart(NamedTuple):
    """A prompt with its name in the agent."""

    name: str
    """Place and name, such as `system.persona`; the place, or the path such as `system[1]`, for a prompt without a
    name."""
    path: str
    """Path in the layers, such as `system[0]`."""
    prompt: BasePrompt


def prompt_parts(layers: Layers) -> list[PromptPart]:
    """Return all prompts of layers with unique names, in the order they are sent."""
    parts: list[PromptPart] = []
    names: set[str] = set()
    for path, prompt in layers.walk():
        place = path.partition("[")[0]
        name = path
        if prompt.name:
            name = f"{place}.{prompt.name}"
        elif path == f"{place}[0]" and len(getattr(layers, place)) == 1:
            name = place
        if name in names:
            name = path
        names.add(name)
        parts.append(PromptPart(name, path, prompt))
    return parts


class RecordedVersion(NamedTuple):
    """Versions in the journal of a run; see `AgentVersion`."""

    id: str = ""
    hashes: Mapping[str, str] = MappingProxyType({})


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of the parts whose hashes differ, with added and removed parts."""
    return [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]


class AgentVersion:
    """Versions of an agent, equal in every process, and computed at their first use.

    Code, such as the methods of a prompt or a selector, is represented only by the names of its classes and functions.
    Tools that each run creates have no version.
    """

    __slots__ = ("_answer", "_hashes", "_id", "_layers", "_model", "_specs", "_texts", "_toolsets")

    def __init__(self, chain: Chain[Any], tools: AgentTools) -> None:
        # Journals outlive agents and have a version: it must not keep the model and its connections.
        model = chain.model
        self._model = [type(model), model.name, getattr(model, "settings", None)]
        self._layers = chain.layers
        self._answer = chain.answer
        self._specs = tools.specs
        self._toolsets = tools.context_toolsets
        self._id = ""
        self._texts: Mapping[str, str] | None = None
        self._hashes: Mapping[str, str] | None = None

    @property
    def id(self) -> str:
        """Hash of prompts, tools, skills, output type, model and settings, 12 hex digits."""
        if not self._id:
            parts = [
                self._layers,
                [(spec.name, spec.description, spec.parameters, spec.strict, spec.native) for spec in self._specs],
                self._answer.schema,
                *self._model,
            ]
            parts += [toolset.version for toolset in self._toolsets]
            self._id = _hash(json.dumps([_content(part) for part in parts], sort_keys=True))
        return self._id

    @property
    def texts(self) -> Mapping[str, str]:
        """Text of each prompt with its settings, of each tool schema and of each skill, by the name of the part."""
        if self._texts is None:
            texts = {part.name: _prompt_text(part.prompt) for part in prompt_parts(self._layers)}
            for spec in self._specs:
                tool: dict[str, Any] = {"description": spec.description, "parameters": spec.parameters}
                tool |= {"native": spec.native, "strict": spec.strict}
                texts[f"{_TOOLS}.{spec.name}"] = _indented({key: value for key, value in tool.items() if value})
            for toolset in self._toolsets:
                texts |= toolset.texts
            self._texts = MappingProxyType(texts)
        return self._texts

    @property
    def hashes(self) -> Mapping[str, str]:
        """Hash of each text of `texts`, 12 hex digits."""
        if self._hashes is None:
            self._hashes = MappingProxyType({name: _hash(text) for name, text in self.texts.items()})
        return self._hashes


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _indented(data: Any) -> str:
    return json.dumps(_content(data), sort_keys=True, indent=1, ensure_ascii=False)


def _prompt_text(prompt: BasePrompt) -> str:
    """Return the texts of a prompt, after its settings that are no defaults."""
    template = prompt.template
    settings = {
        name: getattr(prompt, name)
        for name in prompt.model_fields_set - {"template", "name"}
        if not _contains_prompts(getattr(prompt, name))
    }
    if template.params_schema is not None:
        settings["schema"] = template.params_schema
    head = ""
    if settings or template.engine == "fstring":
        head = f"---\n{_indented({'engine': template.engine, **settings})}\n---\n"
    if isinstance(template.text, str):
        return head + template.text
    return head + "\n".join([f"[{locale}]\n{text}" for locale, text in template.text.items()])


def _contains_prompts(value: object) -> bool:
    """True for a prompt, or a list of prompts: they are parts with separate names."""
    if isinstance(value, list | tuple):
        return any(isinstance(each, BasePrompt) for each in value)
    return isinstance(value, BasePrompt)


def _content(value: Any) -> Any:
    """Return a value as JSON data, equal in every process."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Template):
        # The version of a template is a hash of the text, also if the text is from a file.
        return ["Template", value.version, value.engine, _content(value.params_schema)]
    if isinstance(value, Mapping):
        return {str(key): _content(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(json.dumps(_content(item), sort_keys=True) for item in value)
    if isinstance(value, list | tuple):
        return [_content(item) for item in value]
    # Classes and functions are represented by their names: their code is not part of the version.
    if isinstance(name := getattr(value, "__qualname__", None), str):
        return name
    return [type(value).__qualname__, {name: _content(getattr(value, name)) for name in _field_names(value)}]


def _field_names(value: object) -> list[str]:
    """Return the names of the fields of an object that represent its content."""
    if isinstance(value, BaseModel):
        return [*type(value).model_fields]
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    # A custom object, such as a selector. The text of other attributes can contain addresses, which differ by process.
    attributes = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
    return [name for name in attributes if name[:1] != "_" and isinstance(getattr(value, name, None), _PLAIN)]
