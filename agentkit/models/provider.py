"""`Provider`: a row of the table of providers: its address, its variables, its settings and its differences."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.models.provider_addresses import host_of, with_path

if TYPE_CHECKING:
    from agentkit.models.abilities import OutputMode
    from agentkit.models.settings import Fields
    from agentkit_prompts.context.wire.write_openai_chat import Required

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?")
_EMPTY: Mapping[str, Any] = {}


class AddressPart(NamedTuple):
    """A part of the address of a provider, such as a region."""

    name: str
    variables: tuple[str, ...]
    """Environment variables that contain the part; the first variable with a value applies."""
    default: str = ""
    """Value without a variable; empty if a variable is required."""

    @property
    def value(self) -> str:
        """The value of the environment, or the default."""
        return _set_variable(self.variables).value or self.default


class Provider(NamedTuple):
    """A provider of models."""

    name: str
    """Prefix of model names, such as `groq` in `groq:llama-3.3-70b-versatile`."""
    address: str
    """Base URL, with `{NAME}` for each part; empty if only a variable or an argument contains the address."""
    docs: str
    """Address of the documentation."""
    in_spans: str
    """Name of the provider in spans; empty if spans contain the name of the class instead."""
    model: str = ""
    """Name of the model class in `agentkit.models`; empty for a chat-completions endpoint that this row describes."""
    hosts: tuple[str, ...] = ()
    """Hosts of the provider; `*` is any text."""
    own_keys: tuple[str, ...] = ()
    """Environment variables of the key, instead of `NAME_API_KEY`."""
    needs_key: bool = True
    """True if the hosts of the provider require a key."""
    own_addresses: tuple[str, ...] = ()
    """Environment variables of the base URL, instead of `NAME_BASE_URL`."""
    parts: tuple[AddressPart, ...] = ()
    """Parts of the address that the environment determines."""
    path: str = ""
    """Path that is added to an address without a path."""
    read_address: Callable[[str, str], str] = with_path
    """Function of an address and `path` that returns the base URL."""
    fields: Fields = _EMPTY
    """Conversion of the settings that the endpoint supports; a missing setting is refused. A text is the name in the
    body; a function returns a part of the body."""
    exclusive: tuple[str, ...] = ()
    """Settings of which a request can contain only one."""
    body: Mapping[str, Any] = _EMPTY
    """Fields of each request that `extra` can override."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")
    """Modes of typed output, the preferred mode first."""
    required: Required | None = None
    """Entry that the endpoint requires in messages of the assistant, also in messages of other models."""
    reads_media: bool = True
    """False if all models of the provider read text only."""
    requests_usage: bool = True
    """True if a stream contains its usage only on request."""
    own_templates: tuple[str, ...] = ()
    """Starts of the names of models whose prompt the provider writes from messages itself, so that it reads control
    tokens in messages as text. An empty text is the start of any name."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Environment variables of the key; the first variable with a value applies."""
        return self.own_keys or (f"{self.name.upper()}_API_KEY",)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Environment variables of the base URL; the first variable with a value applies."""
        return self.own_addresses or (f"{self.name.upper()}_BASE_URL",)

    @property
    def key_variable(self) -> str:
        """The environment variable that contains the key, or the first of the possible variables."""
        return _set_variable(self.keys).name

    @property
    def key(self) -> str:
        """The key of the environment; empty without a key."""
        return _set_variable(self.keys).value

    @property
    def address_variable(self) -> str:
        """The environment variable that contains the base URL, or the first of the possible variables."""
        return _set_variable(self.addresses).name

    @property
    def address_value(self) -> str:
        """The base URL of the environment, as it is written there; empty without a variable."""
        return _set_variable(self.addresses).value

    def base_url(self, passed: str | None = None) -> str:
        """Return the base URL that was passed, of the environment, or of the provider; empty if a part is missing."""
        text = passed or self.address_value
        if text:
            return self.read_address(text, self.path)
        values = {part.name: part.value for part in self.parts}
        if not all(values.values()) or self.invalid_variable:
            return ""
        # The location `global` is not a part of the host.
        return self.address.format_map(values).replace("//global-", "//")

    @property
    def missing_variables(self) -> list[str]:
        """Variables that the base URL requires and that have no value, with their alternatives."""
        if not self.address:
            return [" or ".join(self.addresses)]
        return [" or ".join(part.variables) for part in self.parts if not part.value]

    def has_host(self, host: str) -> bool:
        """True if a host, with or without a port, belongs to the provider."""
        name = host.partition(":")[0].lower()
        return any(fnmatchcase(name, pattern) for pattern in self.hosts)

    @property
    def invalid_variable(self) -> str:
        """Variable with a part of the address that contains other characters than letters, digits, `-`, `.` and `:`."""
        invalid = [part for part in self.parts if part.value and not _PART.fullmatch(part.value)]
        return next((_set_variable(part.variables).name for part in invalid), "")

    def requires_key(self, url: str) -> bool:
        """True if requests to a base URL need a key; an empty URL is an address that is still missing."""
        return self.needs_key and (not url or self.has_host(host_of(url)))

    def writes_template(self, model: str) -> bool:
        """True if the provider reads control tokens in messages to this model as text."""
        return model.lower().startswith(self.own_templates)


class _Variable(NamedTuple):
    """An environment variable."""

    name: str
    value: str
    """Value without white space at its ends; empty if the variable is not set."""


def _set_variable(names: tuple[str, ...]) -> _Variable:
    """Return the first variable with a value; the first variable, with an empty value, if no variable is set."""
    for name in names:
        value = os.environ.get(name, "").strip()
        if value:
            return _Variable(name, value)
    return _Variable(names[0], "")
