"""`version_of`: version of an agent, derived from the content of its requests and equal in every process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from agentkit_prompts.templates.template import Template

__all__ = ["version_of"]

_PLAIN = (str, int, float)
"""Types that are JSON data unchanged."""


def version_of(agent: Any) -> str:
    """Return a hash of the content of requests: prompts, tools, output type, model and settings.

    Code, such as the methods of a prompt or a selector, is represented only by the names of its classes and functions.
    """
    chain = agent.definition.chain
    model, specs = chain.model, agent.definition.tools.specs
    parts = [
        chain.layers,
        [(spec.name, spec.description, spec.parameters, spec.strict, spec.native) for spec in specs],
        chain.output_schema,
        type(model),
        model.name,
        getattr(model, "settings", None),
    ]
    text = json.dumps([_content(part) for part in parts], sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


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
