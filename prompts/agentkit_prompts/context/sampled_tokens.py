"""`SampledTokens`: token ids and log probabilities that a model sampled, in the opaque data of its message."""

from __future__ import annotations

import binascii
import hashlib
import json
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import MessageError

_KEY = "tokens"
"""Key in the opaque data. No endpoint has this name, so the data are never sent."""
_WIDTH = 3
"""Bytes of an id, the lowest first: base64 has 4 characters per id."""
MAX_ID = (1 << 8 * _WIDTH) - 1
"""Maximum id of a token."""
MAX_LOGARITHM = 3e38
"""Maximum absolute value of a log probability: a larger number does not fit into 32 bits."""


class SampledTokens(NamedTuple):
    """The tokens of a reply."""

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...] | None
    """Natural logarithms, one per id, as 32-bit numbers; None if the server sent none."""
    text_digest: str
    """Digest of the text of the ids; see `text_digest`."""

    @staticmethod
    def digest(text: str) -> str:
        """Return the digest of the text of ids."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def with_sampled_tokens(
    message: Message, ids: Sequence[int], log_probabilities: Sequence[float] | None, text: str
) -> Message:
    """Return a message that also stores the tokens from which it was parsed.

    The tokens are ignored if the content, the thinking or the calls were changed since.

    Args:
        message: The message.
        ids: The token ids, each from 0 to `MAX_ID`.
        log_probabilities: Natural logarithms, one per id; None if they are unknown.
        text: Text of the ids.
    """
    data = {
        "ids": b64encode(b"".join([token.to_bytes(_WIDTH, "little") for token in ids])).decode(),
        "text": SampledTokens.digest(text),
        "of": _digest(message),
    }
    if log_probabilities is not None:
        data["log_probabilities"] = b64encode(_swapped(array("f", log_probabilities).tobytes())).decode()
    return replace(message, opaque={**message.opaque, _KEY: data})


def resealed(message: Message) -> Message:
    """Return a message whose tokens, if it has tokens, belong to its present content."""
    data = message.opaque.get(_KEY)
    if data is None:
        return message
    return replace(message, opaque={**message.opaque, _KEY: {**data, "of": _digest(message)}})


def sampled_tokens(message: Message) -> SampledTokens | None:
    """Return the tokens of a message; None if it has no tokens, or was changed since.

    Raises:
        MessageError: The stored tokens are corrupt.
    """
    data = message.opaque.get(_KEY)
    if data is None:
        return None
    try:
        if data["of"] != _digest(message):
            return None
        packed = b64decode(data["ids"], validate=True)
        ids = tuple([int.from_bytes(packed[at : at + _WIDTH], "little") for at in range(0, len(packed), _WIDTH)])
        values = None
        if "log_probabilities" in data:
            numbers = array("f")
            numbers.frombytes(_swapped(b64decode(data["log_probabilities"], validate=True)))
            values = tuple(numbers)
        text = str(data["text"])
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise MessageError(f"opaque.{_KEY}: the stored tokens are corrupt: {error}", name=f"opaque.{_KEY}") from error
    if len(packed) % _WIDTH or (values is not None and len(values) != len(ids)):
        raise MessageError(f"opaque.{_KEY}: the stored tokens are corrupt: wrong length", name=f"opaque.{_KEY}")
    return SampledTokens(ids, values, text)


def _swapped(data: bytes) -> bytes:
    """Return 32-bit numbers of this machine as little-endian numbers, and the reverse."""
    if sys.byteorder == "little":
        return data
    numbers = array("f", data)
    numbers.byteswap()
    return numbers.tobytes()


def _digest(message: Message) -> str:
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    text = json.dumps([message.text, message.reasoning, calls])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
