"""`TextScore`: how likely a model finds each token of a text, read from what a completions endpoint echoes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import ModelReplyError

__all__ = ["EchoReader", "TextScore"]

_PART = "\ufffd"
"""Stands in a token that ends inside of a character."""
_BYTES = "bytes:"
"""How some endpoints begin such a token."""
_PIECES = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
"""How tokenizers write white space, where an endpoint hands out their pieces."""


@dataclass(frozen=True, slots=True)
class TextScore:
    """The log probabilities of a text, token by token."""

    tokens: tuple[str, ...]
    """As the endpoint cuts the text; together they are the text. One in front of it is empty, and so is one that ends a
    character which another began."""
    log_probabilities: tuple[float | None, ...]
    """Natural logarithms; None for a first token, which nothing stands before."""
    usage: Usage = NO_USAGE
    """Tokens of the request."""

    def total(self, start: int = 0) -> float:
        """Return the log probability of the text from a character on; a token belongs to where it ends."""
        found, at = 0.0, 0
        for token, value in zip(self.tokens, self.log_probabilities, strict=True):
            at += len(token)
            if at > start and value is not None:
                found += value
        return found

    def size(self, start: int = 0) -> int:
        """Return the number of tokens from a character on; of the whole text also those before it."""
        at, found = 0, 0
        for token in self.tokens:
            at += len(token)
            found += at > start or not start
        return found


def _size(text: str, at: int, token: str) -> int | None:
    """Return how much of a text is a token of it; None where it is not what stands there."""
    for form in (token, plain := token.translate(_PIECES)):
        if text.startswith(form, at):
            return len(form)
    # Some tokenizers put a space in front of every text.
    return len(plain) - 1 if not at and plain[:1] == " " and text.startswith(plain[1:]) else None


def _is_part(token: str) -> bool:
    return _PART in token or token.startswith(_BYTES)


def _until(text: str, at: int, token: str) -> int:
    """Return how many characters stand before the next token that is text: those that tokens have parts of."""
    for form in (token, token.translate(_PIECES)):
        if form and (found := text.find(form, at + 1)) >= 0:
            return found - at
    return len(text) - at


class EchoReader(ReplyReader):
    """Reads a completion that repeats its prompt with log probabilities."""

    def __init__(self, text: str, model: str, host: str) -> None:
        super().__init__()
        self._asked, self._model, self._host = text, model, host
        self._logprobs: Any = None

    def _delta(self, choice: dict[str, Any]) -> object:
        self._logprobs = choice.get("logprobs")
        return {"content": choice.get("text")}

    def score(self) -> TextScore:
        """Return the log probabilities of the text, without what the model wrote behind it.

        Raises:
            ModelReplyError: The endpoint does not send them.
        """
        held = self._logprobs if isinstance(self._logprobs, dict) else {}
        tokens, values = held.get("tokens"), held.get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
            raise self._refusal("its reply has no log probabilities of the prompt")
        text = self._asked
        found: list[tuple[str, float | None]] = []
        at, is_inside = 0, False
        for number, (token, value) in enumerate(zip(tokens, values, strict=True)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not isinstance(token, str) or not (is_number or (value is None and not number)):
                raise self._refusal(f"log probability {number} of its reply is {value!r:.40} for {token!r:.40}")
            is_part = _is_part(token)
            if at >= len(text) and not (is_inside and is_part):
                break
            size = _size(text, at, token)
            if size is None and is_part:
                behind = (one for one in tokens[number + 1 :] if isinstance(one, str) and not _is_part(one))
                size = 0 if is_inside else _until(text, at, next(behind, ""))
            elif size is None and not number:
                size = 0  # such as <s>
            elif size is None:
                break
            found.append((text[at : at + size], value))
            at += size
            is_inside = is_part
        if at < len(text):
            raise self._refusal(
                f"it sent log probabilities of {at} characters, and the text has {len(text)}: it did not repeat the "
                "prompt"
            )
        return TextScore(tuple(token for token, _ in found), tuple(value for _, value in found))

    def _refusal(self, why: str) -> ModelReplyError:
        return ModelReplyError(
            f"{why}; scoring a text needs a completions endpoint that knows `echo` and `logprobs`, such as vLLM's",
            model=self._model,
            host=self._host,
            name="logprobs",
        )
