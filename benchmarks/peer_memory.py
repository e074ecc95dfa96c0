"""W7: memory compared with mem0: store and recall turns of 25 words, with the same embedder and no language model.

The embedder adds a fixed direction per word, so that its cost is small and no network is used. mem0 stores turns as
they are (`infer=False`) in its default vector store, the local mode of qdrant-client; agentkit stores messages,
indexes words and vectors in SQLite and Qdrant Edge, and recalls by both.
"""

from __future__ import annotations

import importlib.util
import os
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness import Figure, Samples, figures, main

from agentkit_memory import Memory
from agentkit_prompts.context.messages import Message
from memory import sentence

TURNS, QUESTIONS, SIZE = 1_000, 40, 128


@cache
def direction(word: str) -> Any:
    """Return the direction of a word."""
    import numpy as np

    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(SIZE).astype("float32")


def vector_of(text: str) -> list[float]:
    """Return the sum of the directions of the words, of length 1."""
    import numpy as np

    total = np.sum([direction(word) for word in text.split()], axis=0)
    vector: list[float] = (total / np.linalg.norm(total)).tolist()
    return vector


class Embedder:
    """The embedder of agentkit."""

    model = "words"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [vector_of(text) for text in texts]


def mem0_memory(folder: Path) -> Any:
    """Return a memory of mem0 with the same embedder; its language model is never called."""
    os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder)}  # read during the import
    from langchain_core.embeddings import Embeddings
    from mem0 import Memory as PeerMemory

    class PeerEmbedder(Embeddings):
        def embed_query(self, text: str) -> list[float]:
            return vector_of(text)

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [vector_of(text) for text in texts]

    store = {"collection_name": "turns", "path": str(folder / "qdrant"), "embedding_model_dims": SIZE, "on_disk": True}
    return PeerMemory.from_config(
        {
            "embedder": {"provider": "langchain", "config": {"model": PeerEmbedder(), "embedding_dims": SIZE}},
            "vector_store": {"provider": "qdrant", "config": store},
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "history_db_path": str(folder / "history.db"),
        }
    )


def timed(work: Callable[[], object], count: int = 1) -> float:
    """Return the CPU seconds of one of `count` units of work."""
    start = time.process_time()
    work()
    return (time.process_time() - start) / count


def beside_mem0(_: int) -> Iterator[Figure]:
    """Measure each library once: mem0 takes minutes for more turns."""
    if importlib.util.find_spec("mem0") is None:
        return
    random_ = random.Random(3)
    texts = [sentence(random_, 25) for _ in range(TURNS)]
    questions = [sentence(random_, 6) for _ in range(QUESTIONS)]
    for text in [*texts, *questions]:
        vector_of(text)  # the directions of the words are known
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        peer = mem0_memory(Path(home, "mem0"))

        def store_in_mem0() -> None:
            for text in texts:
                peer.add([{"role": "user", "content": text}], user_id="u", infer=False)

        with Memory(Path(home, "ours"), embedder=Embedder()) as memory:

            def store() -> None:
                session = memory.session("s")
                for text in texts:
                    session.append(Message("user", text))
                memory.worker().drain()

            stored = {"mem0": timed(store_in_mem0, TURNS), "ours": timed(store, TURNS)}
            found = peer.search(questions[0], filters={"user_id": "u"}, top_k=10, threshold=0.0)
            assert len(found["results"]) == 10
            recalled: dict[str, list[float]] = {"mem0": [], "ours": []}
            for question in questions:
                search = {"filters": {"user_id": "u"}, "top_k": 10, "threshold": 0.0}
                recalled["mem0"].append(timed(lambda text=question, search=search: peer.search(text, **search)))
                recalled["ours"].append(timed(lambda text=question: memory.recall(text, limit=10)))
    yield from figures("W7 mem0, store a turn", {name: Samples([value]) for name, value in stored.items()}, unit="ms")
    title = f"W7 mem0, recall of {TURNS:,} turns"
    yield from figures(title, {name: Samples(values) for name, values in recalled.items()}, unit="ms")


if __name__ == "__main__":
    main(__doc__, {"mem0": beside_mem0})
