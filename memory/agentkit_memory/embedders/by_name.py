"""Embedders by name, as a command line or a configuration file says them: `fastembed:BAAI/bge-small-en-v1.5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from agentkit_memory.embedders.contract import ModelEmbedder
from agentkit_memory.embedders.fastembed import FastembedEmbedder
from agentkit_memory.embedders.openai_embedder import OpenAIEmbedder
from agentkit_memory.embedders.sentence_transformers import SentenceTransformersEmbedder
from agentkit_memory.errors import EmbedderError

__all__ = ["embedder_named"]


def _openai(name: str) -> ModelEmbedder:
    model, _, size = name.partition("@")
    return OpenAIEmbedder(model, dimensions=int(size) if size.isascii() and size.isdigit() else None)


_KINDS: Mapping[str, Callable[[str], ModelEmbedder]] = {
    "fastembed": FastembedEmbedder,
    "openai": _openai,
    "sentence-transformers": SentenceTransformersEmbedder,
}


def embedder_named(name: str) -> ModelEmbedder:
    """Return the embedder whose `model` this is. Nothing is loaded or asked yet.

    Raises:
        EmbedderError: It is not KIND:MODEL, or there is no such kind.
    """
    kind, _, model = name.partition(":")
    make = _KINDS.get(kind)
    if make is None or not model:
        near = get_close_matches(kind, _KINDS, 1) if make is None else [kind]
        meant = f"; did you mean {near[0]}:{model or 'MODEL'}?" if near else ""
        kinds = ", ".join(sorted(_KINDS))
        raise EmbedderError(f"embedder {name!r}: expected KIND:MODEL, the kind being one of {kinds}{meant}")
    return make(model)
