"""`Thinking`: a thought of a model before its answer, as part of its message."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkit_prompts.context.frozen import FrozenDict, set_plain_text
from agentkit_prompts.context.opaque import Opaque, no_opaque, opaque_data
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.errors import MessageError, check_types

_TEXT_OR_NONE = (str, type(None))


@dataclass(frozen=True, slots=True, repr=False)
class Thinking:
    """Thinking of a model before its answer, or a step of its provider, such as a web search.

    Thinking is not content: it is sent back to its provider only, and chat templates can show its `text`.

    Raises:
        MessageError: Fields have the wrong type; names all of them.
    """

    __repr__ = short_repr

    text: str = ""
    """Text of the thinking; empty if the provider does not send it."""
    provider: str = "openai"
    """Receiver of the thinking: every endpoint of a wire form (`openai` for chat completions, `responses`,
    `anthropic`), one endpoint of the form, or one model of the endpoint, see `Owner`."""
    signature: str | None = None
    """Signature with which the provider verifies the text; None without a signature."""
    redacted: str | None = None
    """The thinking, encrypted by the provider; None if it is sent as text."""
    at: int = 0
    """Number of content parts and tool calls of the message before the thinking."""
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)
    """The complete block as the provider sent it, if it has more than text, signature and redacted; else empty."""

    @property
    def is_sealed(self) -> bool:
        """True if the provider verifies the thinking or accepts only its complete block, so that no character changes.

        Control tokens in it are neither marked in a request nor restored in a reply.
        """
        return bool(self.signature or self.redacted or self.opaque)

    def __post_init__(self) -> None:
        set_plain_text(self, "text", "provider", "signature", "redacted")
        check_types(
            MessageError,
            "Thinking",
            text=(self.text, str, "text"),
            provider=(self.provider, str, "text"),
            signature=(self.signature, _TEXT_OR_NONE, "text or None"),
            redacted=(self.redacted, _TEXT_OR_NONE, "text or None"),
            at=(self.at, int, "a whole number"),
        )
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))
