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
    if at == 0 and plain[:1] == " " and text.startswith(plain[1:]):
        return len(plain) - 1
    return None


def _is_part(token: str) -> bool:
    return _PART in token or token.startswith(_BYTES)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _until(text: str, at: int, token: str) -> int:
    """Return how many characters stand before the next token that is text: those that tokens have parts of."""
    for form in (token, token.translate(_PIECES)):
        if form and (found := text.find(form, at + 1)) >= 0:
            return found - at
    return len(text) - at


class _ScoredText:
    """Matches tokens with the text that they spell."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_inside = False
        """True after a token that ends inside a character."""
        self.at = 0
        """Characters that are matched."""
        self.tokens: list[str] = []
        self.values: list[float | None] = []

    def add(self, token: str, value: float | None, following: list[Any]) -> bool:
        """Match a token; return False if it is not part of the text."""
        is_part = _is_part(token)
        if self.at >= len(self._text) and not (self._is_inside and is_part):
            return False
        size = _size(self._text, self.at, token)
        if size is None:
            size = self._size_of_unmatched(is_part=is_part, following=following)
        if size is None:
            return False
        self.tokens.append(self._text[self.at : self.at + size])
        self.values.append(value)
        self.at += size
        self._is_inside = is_part
        return True

    def _size_of_unmatched(self, *, is_part: bool, following: list[Any]) -> int | None:
        if is_part and self._is_inside:
            # The first part of a character took all of it.
            return 0
        if is_part:
            whole = (token for token in following if isinstance(token, str) and not _is_part(token))
            return _until(self._text, self.at, next(whole, ""))
        # A special token such as <s> may begin the prompt.
        if self.tokens:
            return None
        return 0


class EchoReader(ReplyReader):
    """Reads a completion that repeats its prompt with log probabilities."""

    def __init__(self, text: str, model: str, host: str) -> None:
        super().__init__()
        self._asked, self._model, self._host = text, model, host
        self._logprobs: Any = None

    def _message_delta(self, choice: dict[str, Any]) -> object:
        self._logprobs = choice.get("logprobs")
        return {"content": choice.get("text")}

    def score(self) -> TextScore:
        """Return the log probabilities of the text, without those of what the model wrote after it.

        Raises:
            ModelReplyError: The endpoint does not send them.
        """
        tokens, values = self._echoed()
        scored = _ScoredText(self._asked)
        for number, (token, value) in enumerate(zip(tokens, values, strict=True)):
            # Nothing precedes the first token, so it may have no probability.
            is_value = _is_number(value) or (value is None and number == 0)
            if not isinstance(token, str) or not is_value:
                raise self._refusal(f"log probability {number} of its reply is {value!r:.40} for {token!r:.40}")
            if not scored.add(token, value, tokens[number + 1 :]):
                break
        if scored.at < len(self._asked):
            raise self._refusal(
                f"it sent log probabilities of {scored.at} characters, and the text has {len(self._asked)}: it did not "
                "repeat the prompt"
            )
        return TextScore(tuple(scored.tokens), tuple(scored.values))

    def _echoed(self) -> tuple[list[Any], list[Any]]:
        """Return the tokens of the reply and their log probabilities, unchecked."""
        if isinstance(self._logprobs, dict):
            tokens, values = self._logprobs.get("tokens"), self._logprobs.get("token_logprobs")
            if isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values):
                return tokens, values
        raise self._refusal("its reply has no log probabilities of the prompt")

    def _refusal(self, why: str) -> ModelReplyError:
        return ModelReplyError(
            f"{why}; scoring a text needs a completions endpoint that knows `echo` and `logprobs`, such as vLLM's",
            model=self._model,
            host=self._host,
            name="logprobs",
        )
