"""`Owner`: the endpoint and the model to which the thinking and the opaque data of a reply belong."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

_SIGNED_KEYS = (
    *("signature", "thought_signature", "thought_signatures", "thoughtSignature", "encrypted_content"),
    "reasoning_opaque",
)
_SIGNED_TYPES = ("redacted_thinking", "reasoning.encrypted")


class Owner(NamedTuple):
    """Wire form, endpoint and model of a reply. Its data go back to this owner and to no other endpoint.

    Data read without an endpoint, such as a list of messages, belong to every endpoint of their form.
    """

    form: str
    """Wire form: `openai` for chat completions, `responses`, `anthropic` or `completion`."""
    host: str = ""
    """Host and port of the endpoint; empty if it is unknown."""
    model: str = ""
    """Name of the model, as it was requested."""

    def key(self, data: object) -> str:
        """Return the owner of data of a reply, as the key of the data in its message."""
        form, at_host, at_model = _keys(self)
        if not self.host:
            return form
        # Another model of the same endpoint refuses signed thinking, and ids of items whose reasoning is missing.
        if self.form == "responses" or _is_signed(data):
            return at_model
        return at_host

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the data that a request to this owner contains."""
        if not self.host:
            return (self.form,)
        return _keys(self)


@lru_cache(maxsize=256)
def _keys(owner: Owner) -> tuple[str, str, str]:
    """Return the keys for data of the form, of the endpoint and of the model."""
    at_host = f"{owner.form}@{owner.host}"
    return owner.form, at_host, f"{at_host}/{owner.model}"


def _is_signed(data: object) -> bool:
    """True if a provider signed or encrypted a part of data, so that only its model accepts it."""
    if isinstance(data, Mapping):
        if data.get("type") in _SIGNED_TYPES or any(data.get(key) for key in _SIGNED_KEYS):
            return True
        return any(_is_signed(value) for key, value in data.items() if not _is_of_steps(data, key))
    if isinstance(data, list | tuple):
        return any(map(_is_signed, data))
    return False


def _is_of_steps(data: Mapping[Any, Any], key: Any) -> bool:
    """True for the content of a step of the provider: each model of the provider accepts its encrypted results."""
    return key == "content" and str(data.get("type")).endswith("_tool_result")
