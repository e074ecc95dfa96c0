"""A real tokenizer with a small vocabulary, and servers that answer with token ids as vLLM and SGLang document it."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tests.servers import USAGE, Asked, Handler, streams

SPECIAL = ("<|im_start|>", "<|im_end|>")
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("a", "d"), ("ad", "d"), ("Ġ", "i"), ("Ġi", "s")]


def small_tokenizer(*tokens: str) -> Tokenizer:
    """Return a byte-level tokenizer with a few merges, the control tokens of ChatML, and more tokens."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(BPE(vocabulary, MERGES))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ("<think>", "</think>", *tokens)])
    return tokenizer


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text letter by letter, which the tokenizer itself would write with fewer tokens."""
    ids: list[int] = []
    rest = text
    while rest:
        special = next((token for token in ("<think>", "</think>", *SPECIAL) if rest.startswith(token)), rest[0])
        ids += tokenizer.encode(special, add_special_tokens=False).ids
        rest = rest[len(special) :]
    return ids


def samples(tokenizer: Tokenizer, text: str, /, *, stop: str = "<|im_end|>", size: int = 3, **changes: Any) -> Handler:
    """Answer with text, its ids and their log probabilities; without the stop word, which is the last token."""

    def piece(ids: list[int], at: int, reason: str | None, prompt: list[int] | None) -> dict[str, Any]:
        values = [-0.25 * (at + number + 1) for number in range(len(ids))]
        tokens = [tokenizer.decode([token]) for token in ids]
        choice = {
            "index": 0,
            "text": tokenizer.decode(ids),
            "finish_reason": reason,
            "token_ids": ids,
            "logprobs": {"tokens": tokens, "token_logprobs": values, "top_logprobs": [], "text_offset": []},
        }
        if prompt is not None:
            choice["prompt_token_ids"] = prompt
        return {"id": "c1", "object": "text_completion", "model": "served", "choices": [{**choice, **changes}]}

    def handler(asked: Asked) -> Response:
        assert asked.body["return_token_ids"] is True
        assert asked.body["logprobs"] == 1
        prompt = asked.body["prompt"]
        assert isinstance(prompt, list)
        ids = letters(tokenizer, text + stop)
        if not asked.body.get("stream"):
            return JSONResponse({**piece(ids, 0, "stop", prompt), "usage": USAGE})
        starts = range(0, len(ids), size)
        pieces = [piece(ids[at : at + size], at, None, prompt if at == 0 else None) for at in starts]
        last = {"index": 0, "text": "", "finish_reason": "stop", "token_ids": []}
        pieces.append({"id": "c1", "object": "text_completion", "model": "served", "choices": [last]})
        return streams(*pieces)(asked)

    return handler
