"""`TextScore`: log probabilities of the tokens of a text, read from the echo of a completions endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import ModelReplyError

_PART = "\ufffd"
"""Character of a token that ends inside of a character of the text."""
_BYTES = "bytes:"
"""Prefix of such a token at some endpoints."""
_PIECES = str.maketrans({"\u2581": " ", "\u0120": " ", "\u010a": "\n"})
"""White space in the internal notation of tokenizers, which some endpoints send."""


@dataclass(frozen=True, slots=True)
class TextScore:
    """The log probabilities of a text, token by token."""

    tokens: tuple[str, ...]
    """Tokens of the endpoint, which joined are the text. A special token before the text is empty, and so is a token
    that continues a character of the token before."""
    log_probabilities: tuple[float | None, ...]
    """Natural logarithms; None for a first token, which has no context."""
    usage: Usage = NO_USAGE
    """Tokens of the request."""

    def total(self, start: int = 0) -> float:
        """Return the log probability of the text from position `start`: the sum of the tokens that end after it."""
        total, at = 0.0, 0
        for token, value in zip(self.tokens, self.log_probabilities, strict=True):
            at += len(token)
            if at > start and value is not None:
                total += value
        return total

    def size(self, start: int = 0) -> int:
        """Return the number of tokens that end after position `start`; all tokens if `start` is 0."""
        if not start:
            return len(self.tokens)
        at, count = 0, 0
        for token in self.tokens:
            at += len(token)
            count += at > start
        return count


def _size(text: str, at: int, token: str) -> int | None:
    """Return the number of characters of a token at a position of a text; None if the text does not match."""
    for form in (token, plain := token.translate(_PIECES)):
        if text.startswith(form, at):
            return len(form)
    # Some tokenizers insert a space before every text.
    if at == 0 and plain[:1] == " " and text.startswith(plain[1:]):
        return len(plain) - 1
    return None


def _is_part(token: str) -> bool:
    return _PART in token or token.startswith(_BYTES)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _until(text: str, at: int, token: str) -> int:
    """Return the number of characters before the next token that is text."""
    for form in (token, token.translate(_PIECES)):
        if form and (next_start := text.find(form, at + 1)) >= 0:
            return next_start - at
    return len(text) - at


class _ScoredText:
    """Matches tokens with a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_inside = False
        """True after a token that ends inside a character."""
        self.at = 0
        """Number of matched characters."""
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
            # The first token of a character was matched with the whole character.
            return 0
        if is_part:
            text_tokens = (token for token in following if isinstance(token, str) and not _is_part(token))
            return _until(self._text, self.at, next(text_tokens, ""))
        # A special token such as <s> may precede the text.
        if self.tokens:
            return None
        return 0


class EchoReader(ReplyReader):
    """Reads a completion that repeats its prompt with log probabilities."""

    def __init__(self, text: str, model: str, host: str) -> None:
        super().__init__()
        self._prompt, self._model, self._host = text, model, host
        self._logprobs: Any = None

    def _message_delta(self, choice: dict[str, Any]) -> object:
        self._logprobs = choice.get("logprobs")
        return {"content": choice.get("text")}

    def score(self) -> TextScore:
        """Return the log probabilities of the text, without the tokens that the model wrote after it.

        Raises:
            ModelReplyError: The reply contains no log probabilities of the text.
        """
        tokens, values = self._echoed()
        scored = _ScoredText(self._prompt)
        for number, (token, value) in enumerate(zip(tokens, values, strict=True)):
            # The first token has no context, so its probability may be missing.
            is_value = _is_number(value) or (value is None and number == 0)
            if not isinstance(token, str) or not is_value:
                raise self._refusal(f"log probability {number} of its reply is {value!r:.40} for {token!r:.40}")
            if not scored.add(token, value, tokens[number + 1 :]):
                break
        if scored.at < len(self._prompt):
            raise self._refusal(
                f"it sent log probabilities of {scored.at} characters, and the text has {len(self._prompt)}: it did "
                "not repeat the prompt"
            )
        return TextScore(tuple(scored.tokens), tuple(scored.values))

    def _echoed(self) -> tuple[list[Any], list[Any]]:
        """Return the tokens of the reply and their log probabilities, unchecked."""
        if isinstance(self._logprobs, dict):
            tokens, values = self._logprobs.get("tokens"), self._logprobs.get("token_logprobs")
            if isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values):
                return tokens, values
        raise self._refusal("its reply has no log probabilities of the prompt")

    def _refusal(self, problem: str) -> ModelReplyError:
        return ModelReplyError(
            f"{problem}; scoring a text needs a completions endpoint with `echo` and `logprobs`, such as vLLM",
            model=self._model,
            host=self._host,
            name="logprobs",
        )
