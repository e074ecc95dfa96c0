"""`IdTokenizer`: token ids of text, and text of token ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import PromptError, TokenizerError, brief
from agentkit_prompts.extras import install
from agentkit_prompts.system.regular_files import read_regular_text

_FILE = "tokenizer.json"
_EXPECTED = "expected a Tokenizer of the library tokenizers, or the path of a tokenizer.json or of its folder"
_MAX_CHARACTERS = 1 << 22
"""Maximum total length, in characters, of the texts whose ids are cached."""


class Tokenizer(Protocol):
    """A tokenizer, such as `tokenizers.Tokenizer`."""

    def encode(self, sequence: str, /, *, add_special_tokens: bool = ...) -> Any:
        """Return an object whose `ids` are the token ids of a text."""
        ...

    def decode(self, ids: Sequence[int], /, skip_special_tokens: bool = ...) -> str:
        """Return the text of token ids."""
        ...

    def get_vocab_size(self) -> int:
        """Return the number of tokens of the vocabulary, with added tokens."""
        ...


GivenTokenizer: TypeAlias = "Tokenizer | IdTokenizer | str | os.PathLike[str]"
"""A tokenizer, the path of a `tokenizer.json`, or the path of its folder."""


class IdTokenizer:
    """Converts text to token ids and back. The conversion is exact: the ids of a text decode to the same text.

    Args:
        tokenizer: The tokenizer; also a fast tokenizer of `transformers`.

    Raises:
        PromptError: The value is no tokenizer, or its file cannot be read.
    """

    def __init__(self, tokenizer: Tokenizer | str | os.PathLike[str]) -> None:
        self._tokenizer: Any = tokenizer
        self._known: dict[str, tuple[int, ...]] = {}
        if isinstance(tokenizer, str | os.PathLike):
            self._tokenizer = read_tokenizer(Path(tokenizer))
        # A fast tokenizer of `transformers` contains a tokenizer of `tokenizers`.
        self._tokenizer = getattr(self._tokenizer, "backend_tokenizer", self._tokenizer)
        names = ("encode", "decode", "get_vocab_size")
        if not all(callable(getattr(self._tokenizer, name, None)) for name in names):
            raise PromptError(f"tokenizer: {_EXPECTED}, got {brief(tokenizer)}", name="tokenizer")
        self._characters = 0
        self.size: int = self._tokenizer.get_vocab_size()
        """Number of tokens of the vocabulary."""

    @classmethod
    def of(cls, tokenizer: GivenTokenizer) -> IdTokenizer:
        """Return the value if it is an `IdTokenizer`, with its cache, or a new `IdTokenizer`."""
        if isinstance(tokenizer, IdTokenizer):
            return tokenizer
        return cls(tokenizer)

    def encode(self, text: str, place: str) -> tuple[int, ...]:
        """Return the ids of a text, in which each control token is one token.

        Args:
            text: The text.
            place: Place of the text, for the error.

        Raises:
            TokenizerError: The ids decode to another text.
        """
        ids = self._known.get(text)
        if ids is None:
            ids = tuple(self._tokenizer.encode(clean(text), add_special_tokens=False).ids)
            self._check(ids, clean(text), place)
            self._characters += len(text)
            if self._characters > _MAX_CHARACTERS:
                self._known.clear()
                self._characters = len(text)
            self._known[text] = ids
        return ids

    def decode(self, ids: Sequence[int], place: str, *, skips_special: bool = False) -> str:
        """Return the text of ids.

        Args:
            ids: The ids.
            place: Place of the ids, for the error.
            skips_special: True to leave special tokens out.

        Raises:
            TokenizerError: An id is not in the vocabulary.
        """
        for position, token in enumerate(ids):
            if not 0 <= token < self.size:
                raise TokenizerError(
                    f"token {position} has the id {token}, and the vocabulary of the tokenizer has {self.size} tokens",
                    place=place,
                    position=position,
                    value=token,
                )
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skips_special)
        return text

    def difference(self, ids: Sequence[int], decoded: str, text: str, place: str) -> TokenizerError:
        """Return the error of ids that decode to another text than expected; `decoded` is their text."""
        pairs = zip(decoded, text, strict=False)
        differences = (at for at, (letter, expected) in enumerate(pairs) if letter != expected)
        same = next(differences, min(len(decoded), len(text)))
        # The first token whose text is beyond the common start.
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(self.decode(ids[: middle + 1], place)) > same:
                high = middle
            else:
                low = middle + 1
        expected, got = text[same : same + 20], decoded[same : same + 20]
        return TokenizerError(
            f"from token {low} on, the tokenizer has the text {got!r}, and the text is {expected!r}",
            place=place,
            position=low,
        )

    def _check(self, ids: tuple[int, ...], text: str, place: str) -> None:
        decoded = self.decode(ids, place)
        if decoded != text:
            raise self.difference(ids, decoded, text, place)


def read_tokenizer(path: Path) -> Any:
    """Return the tokenizer of a `tokenizer.json`, or of the file of this name in a folder, without truncation and
    padding.

    Raises:
        PromptError: tokenizers is not installed, or the file cannot be read.
    """
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ImportError as error:
        raise PromptError(f"tokenizer: needs tokenizers: {install('tokens')}", name="tokenizers") from error
    try:
        if path.is_dir():
            path = path / _FILE
        tokenizer = HuggingFaceTokenizer.from_str(read_regular_text(path))
    except Exception as error:
        raise PromptError(
            f"tokenizer: {path}: cannot be read as a tokenizer.json of tokenizers ({error})",
            path=str(path),
            name="tokenizer",
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
