"""What memory found, as plain JSON: each hit with its score, the parts of it, and why it was used or not."""

from __future__ import annotations

import re
from typing import Any

from agentkit.run.parts.recaller import Found
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage

__all__ = ["found_view", "recall_view"]

_MAX_TEXT = 2_000
_MAX_HITS = 500
_WHY = re.compile(r"[+-]\d+\.\d+ = ([^()]*)")
_PART = re.compile(r"([^,]+?) ([+-]\d+\.\d+)(?:, )?")


def found_view(found: Found) -> dict[str, Any]:
    """Return what a run recalled: `hits` in the order of the context, each with its `pointer`, and what failed."""
    hits = [
        _hit(f"{name}[{index}]", item)
        for name in ("documents", "recalled", "knowledge")
        for index, item in enumerate(getattr(found, name))
    ]
    return {"hits": hits[:_MAX_HITS], "omitted": max(0, len(hits) - _MAX_HITS), "degraded": list(found.degraded)}


def recall_view(answer: Any) -> dict[str, Any]:
    """Return what a memory answers to a question that is asked now: all candidates where it explains them.

    Args:
        answer: A `Recall` of agentkit's memory, or the documents and messages of another one.
    """
    explain = getattr(answer, "explain", None)
    degraded = list(getattr(answer, "degraded", ()))
    if not callable(explain):
        hits = [_hit("", item) for item in answer]
        return {"hits": hits[:_MAX_HITS], "omitted": max(0, len(hits) - _MAX_HITS), "degraded": degraded}
    candidates: Any = explain()
    hits = [
        {
            "pointer": "",
            "kind": one.kind,
            "id": one.id,
            "title": "",
            "score": one.score,
            "parts": dict(one.parts),
            "used": one.used,
            "why": one.why,
            "text": one.text,
        }
        for one in candidates[:_MAX_HITS]
    ]
    return {"hits": hits, "omitted": max(0, len(candidates) - _MAX_HITS), "degraded": degraded}


def _hit(pointer: str, item: Document | Fact | RecalledMessage) -> dict[str, Any]:
    why = str(item.metadata.get("why", ""))
    title = getattr(item, "title", "") or ""
    if isinstance(item, RecalledMessage):
        title = item.name or item.role
    return {
        "pointer": pointer,
        "kind": type(item).__name__,
        "id": str(item.id or ""),
        "title": title,
        "source": str(getattr(item, "source", "") or getattr(item, "session", "") or ""),
        "score": item.score,
        "parts": _parts(why),
        "used": True,
        "why": why,
        "text": str(item.text)[:_MAX_TEXT],
    }


def _parts(why: str) -> dict[str, float]:
    """Return the parts of a score, as our memory writes them: `+1.24 = bm25 +0.65, dense +0.59 (bm25 1.48)`."""
    found = _WHY.match(why)
    return {} if found is None else {part[1].strip(): float(part[2]) for part in _PART.finditer(found[1])}
