"""Exact token counters: `tiktoken` encodings and Hugging Face tokenizer files. The libraries are imported at their
first use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import PromptError, brief, check_types
from agentkit_prompts.extras import install
from agentkit_prompts.names import nearest
from agentkit_prompts.tokens.id_tokenizer import read_tokenizer

if TYPE_CHECKING:
    import tiktoken
    from tokenizers import Tokenizer

_INSTALL = install("tokens")
_MAX_CHARACTERS = 1 << 22
"""Maximum total length, in characters, of the texts whose counts a counter caches."""


class _Exact:
    """Base of counters with a tokenizer; counts of texts are cached."""

    __slots__ = ("_characters", "_known", "_known_prompts", "_tokenize", "_tokenize_prompt", "name")

    estimated = False

    def __init__(self, name: str, tokenize: Callable[[str], int], tokenize_prompt: Callable[[str], int]) -> None:
        self.name = name
        self._tokenize = tokenize
        self._tokenize_prompt = tokenize_prompt
        self._known: dict[str, int] = {}
        self._known_prompts: dict[str, int] = {}
        self._characters = 0

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens in the text count as plain text.

        Raises:
            PromptError: The tokenizer rejects the text.
        """
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._counted(text, self._known, self._tokenize)
        return tokens

    def count_prompt(self, text: str) -> int:
        """Return the number of tokens of a text of a chat template: each special token counts as one token.

        Raises:
            PromptError: The tokenizer rejects the text.
        """
        tokens = self._known_prompts.get(text)
        if tokens is None:
            tokens = self._counted(text, self._known_prompts, self._tokenize_prompt)
        return tokens

    def _counted(self, text: str, known: dict[str, int], tokenize: Callable[[str], int]) -> int:
        try:
            tokens = tokenize(text)
        except Exception as error:
            raise PromptError(
                f"{self.name}: cannot tokenize {text[:40]!r}: {error}", name=self.name, value=text
            ) from error
        self._characters += len(text)
        # Both caches are cleared at once, which is simple, and rare, because a session counts the same texts each turn.
        if self._characters > _MAX_CHARACTERS:
            self._known.clear()
            self._known_prompts.clear()
            self._characters = len(text)
        known[text] = tokens
        return tokens

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class TiktokenCounter(_Exact):
    """Counter with an encoding of `tiktoken`.

    Args:
        encoding: Name of an encoding, which tiktoken downloads at its first use, or a `tiktoken.Encoding`.

    Raises:
        PromptError: tiktoken is not installed, or the encoding is unknown or cannot be downloaded.
    """

    __slots__ = ()

    def __init__(self, encoding: str | tiktoken.Encoding = "cl100k_base") -> None:
        if isinstance(encoding, str):
            encoding = _encoding(encoding)
        if isinstance(encoding, type) or not callable(getattr(encoding, "encode_ordinary", None)):
            raise PromptError(
                f"TiktokenCounter: expected the name of an encoding or an Encoding, got {brief(encoding)}"
            )
        encode, encode_all = encoding.encode_ordinary, getattr(encoding, "encode", None)

        def tokenize(text: str) -> int:
            return len(encode(text))

        def tokenize_prompt(text: str) -> int:
            if encode_all is None:
                return tokenize(text)
            return len(encode_all(text, allowed_special="all"))

        super().__init__(encoding.name, tokenize, tokenize_prompt)


def _encoding(name: str) -> tiktoken.Encoding:
    try:
        import tiktoken
    except ImportError as error:
        raise PromptError(f"TiktokenCounter needs tiktoken: {_INSTALL}", name="tiktoken") from error
    names = tiktoken.list_encoding_names()
    if name not in names:
        raise PromptError(f"unknown tiktoken encoding {name!r}{nearest(name, names)}", name="encoding", value=name)
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:
        raise PromptError(
            f"the encoding {name} is not on this machine and cannot be downloaded ({type(error).__name__}: {error}); "
            "run once with network access and TIKTOKEN_CACHE_DIR set to a folder of your program, use "
            "TokenizersCounter with a tokenizer.json, or omit the counter to use an estimate",
            name=name,
        ) from error


class TokenizersCounter(_Exact):
    """Counter with a `tokenizer.json` of Hugging Face `tokenizers`. Special tokens that the tokenizer adds around a
    text are not counted.

    Args:
        path: Path of the file, or of its folder. Its truncation and padding are disabled.

    Raises:
        PromptError: tokenizers is not installed, or the file cannot be read as a tokenizer.
    """

    __slots__ = ()

    def __init__(self, path: str | Path) -> None:
        check_types(PromptError, "TokenizersCounter", path=(path, (str, Path), "the path of a tokenizer.json"))
        file = Path(path)
        tokenizer = read_tokenizer(file)
        whole: list[Tokenizer] = []

        def tokenize_prompt(text: str) -> int:
            if not whole:
                # A second tokenizer, because the setting of special tokens belongs to the tokenizer. It is created at
                # its first use, which is rare.
                whole.append(type(tokenizer).from_str(tokenizer.to_str()))
            return _size(whole[0], text)

        tokenizer.encode_special_tokens = True
        name = file.stem
        if file.is_dir():
            name = file.name
        elif name == "tokenizer" and file.parent.name:
            # The file of every model has the name `tokenizer.json`, so the folder is the better name.
            name = file.parent.name
        super().__init__(name, lambda text: _size(tokenizer, text), tokenize_prompt)


def _size(tokenizer: Tokenizer, text: str) -> int:
    try:
        return len(tokenizer.encode(text, add_special_tokens=False))
    # The tokenizer refuses lone surrogates.
    except TypeError:
        return len(tokenizer.encode(clean(text), add_special_tokens=False))
