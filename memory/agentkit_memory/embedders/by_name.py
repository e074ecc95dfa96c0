"""Embedders by name, as in a command line or a configuration file: `fastembed:BAAI/bge-small-en-v1.5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentkit_memory.embedders.contract import ModelEmbedder
from agentkit_memory.embedders.fastembed_embedder import FastembedEmbedder
from agentkit_memory.embedders.openai_embedder import OpenAIEmbedder
from agentkit_memory.embedders.sentence_embedder import SentenceTransformersEmbedder
from agentkit_memory.errors import EmbedderError
from agentkit_prompts.errors import nearest

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
        EmbedderError: It is not KIND:MODEL, or the kind is unknown.
    """
    kind, _, model = name.partition(":")
    make = _KINDS.get(kind)
    if make is None or not model:
        hint = nearest(kind, _KINDS) if make is None else f", such as {kind}:MODEL"
        raise EmbedderError(f"embedder {name!r}: expected KIND:MODEL{hint}")
    return make(model)
