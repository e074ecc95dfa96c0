"""`TextScore`: how likely a model finds each token of a text, read from what a completions endpoint echoes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import ModelReplyError

__all__ = ["EchoReader", "TextScore"]


@dataclass(frozen=True, slots=True)
class TextScore:
    """The log probabilities of a text, token by token."""

    tokens: tuple[str, ...]
    """As the endpoint cuts the text."""
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
        """Return the number of tokens from a character on."""
        at, found = 0, 0
        for token in self.tokens:
            at += len(token)
            found += at > start
        return found


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
        found: list[tuple[str, float | None]] = []
        at = 0
        for token, value in zip(tokens, values, strict=True):
            if at >= len(self._asked):
                break
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not isinstance(token, str) or not (is_number or (value is None and not found)):
                raise self._refusal(f"log probability {len(found)} of its reply is {value!r:.40} for {token!r:.40}")
            found.append((token, value))
            at += len(token)
        if at < len(self._asked):
            raise self._refusal(
                f"it sent log probabilities of {at} characters, and the text has {len(self._asked)}: it did not repeat "
                "the prompt"
            )
        return TextScore(tuple(token for token, _ in found), tuple(value for _, value in found))

    def _refusal(self, why: str) -> ModelReplyError:
        return ModelReplyError(
            f"{why}; scoring a text needs a completions endpoint that knows `echo` and `logprobs`, such as vLLM's",
            model=self._model,
            host=self._host,
        )
