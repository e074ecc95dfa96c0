"""Small deterministic embedder for tests: texts with common words are near, and two models have different vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence


class Words:
    """Sum of a random direction for each word. `wrong` can replace the vector of a text, or raise."""

    def __init__(
        self, model: str = "words-1", size: int = 64, wrong: Callable[[str], Sequence[float] | None] | None = None
    ) -> None:
        self.model = model
        self.size = size
        self.wrong = wrong
        self._known: dict[str, list[int]] = {}
        self.calls: list[list[str]] = []

    @property
    def asked(self) -> list[str]:
        """All requested texts, in order."""
        return [text for call in self.calls for text in call]

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.calls.append(list(texts))
        return [self._spoiled(text) or self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        words = [self._direction(word) for word in text.lower().replace(".", " ").split()]
        return [float(sum(values)) for values in zip(*words, strict=True)] or [0.0] * self.size

    def _direction(self, word: str) -> list[int]:
        if word not in self._known:
            seed = hashlib.shake_128(f"{self.model} {word}".encode()).digest(self.size)
            self._known[word] = [byte - 128 for byte in seed]
        return self._known[word]

    def _spoiled(self, text: str) -> Sequence[float] | None:
        return self.wrong(text) if self.wrong is not None else None
