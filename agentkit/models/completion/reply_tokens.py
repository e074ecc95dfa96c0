"""`ReplyTokens`: the token ids and log probabilities of one completion.

The options and the fields are the same in vLLM and SGLang: `return_token_ids` adds `prompt_token_ids` to the first
choice and `token_ids` to each, https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.models.http.reader import ProtocolError
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.sampled_tokens import MAX_ID, MAX_LOGARITHM, with_sampled_tokens
from agentkit_prompts.errors import TokenizerError, brief
from agentkit_prompts.tokens.id_tokenizer import IdTokenizer

TOKEN_OPTIONS: Mapping[str, Any] = {"return_token_ids": True, "logprobs": 1}
"""Fields of a request for the ids and the log probabilities of the reply."""


class ReplyTokens:
    """Collects the tokens of one reply.

    Args:
        tokenizer: Tokenizer of the model.
        stop_words: Texts that end a reply, which servers remove from its text.
        prompt: The ids of the prompt.
    """

    def __init__(self, tokenizer: IdTokenizer, stop_words: Sequence[str], prompt: Sequence[int]) -> None:
        self._tokenizer, self._stop_words, self._prompt = tokenizer, stop_words, prompt
        self._text: list[str] = []
        self._ids: list[int] = []
        self._values: list[float] = []

    def add(self, choice: Mapping[str, Any]) -> None:
        """Add a piece of the reply.

        Raises:
            ProtocolError: Ids or log probabilities are no numbers.
            TokenizerError: The server received other ids of the prompt.
        """
        if isinstance(text := choice.get("text"), str):
            self._text.append(text)
        prompt = _ids_of(choice, "prompt_token_ids")
        if prompt and prompt != list(self._prompt):
            pairs = zip(self._prompt, prompt, strict=False)
            shorter = min(len(self._prompt), len(prompt))
            position = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), shorter)
            raise TokenizerError(
                f"the server used other ids than the prompt from token {position} on", place="prompt", position=position
            )
        self._ids += _ids_of(choice, "token_ids")
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            values = logprobs.get("token_logprobs")
            if not isinstance(values, list) or not all(map(_is_log_probability, values)):
                raise ProtocolError(f"logprobs.token_logprobs: expected numbers, got {brief(values)}")
            self._values += values

    def stored(self, message: Message) -> Message:
        """Return the message with its tokens; unchanged if the server sent none, or cut the text inside a token.

        Raises:
            ProtocolError: The numbers of ids and of log probabilities differ.
            TokenizerError: The ids do not decode to the text of the reply.
        """
        if not self._ids:
            return message
        values = None
        if self._values:
            values = self._values
            if len(values) != len(self._ids):
                raise ProtocolError(f"the reply has {len(self._ids)} token ids and {len(values)} log probabilities")
        text, decoded = "".join(self._text), self._tokenizer.decode(self._ids, "reply")
        endings = ("", *self._stop_words)
        if decoded not in [text + ending for ending in endings]:
            # Servers leave special tokens out of the text.
            plain = self._tokenizer.decode(self._ids, "reply", skips_special=True)
            if plain not in [text + ending for ending in endings]:
                # The server cut a stop word that ends inside of a token, or a character that is incomplete.
                if text and plain.startswith(text.rstrip("\ufffd")):
                    return message
                raise self._tokenizer.difference(self._ids, decoded, text, "reply")
        return with_sampled_tokens(message, self._ids, values, decoded)


def _is_log_probability(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_LOGARITHM


def _ids_of(choice: Mapping[str, Any], name: str) -> list[int]:
    """Return the ids in a field; empty without the field.

    Raises:
        ProtocolError: The value is no list of ids.
    """
    ids = choice.get(name)
    if ids is None:
        return []
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token <= MAX_ID for token in ids):
        raise ProtocolError(f"{name}: expected token ids, got {brief(ids)}")
    return ids
