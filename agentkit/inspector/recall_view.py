"""Hits of a recall as JSON: each hit has its score, the parts of the score, and the reason for its use."""

from __future__ import annotations

import re
from typing import Any

from agentkit.run.parts.recaller import RecallResult
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage

_MAX_TEXT = 2_000
_MAX_HITS = 500
_REASON = re.compile(r"[+-]\d+\.\d+ = ([^()]*)")
_NUMBER = re.compile(r" ([+-]\d++\.\d++)")


def result_view(result: RecallResult) -> dict[str, Any]:
    """Return the recalled items of a run: `hits` in the order of the context with their `pointer`, and `degraded`."""
    hits = [
        _hit(f"{name}[{index}]", item)
        for name in ("documents", "recalled", "knowledge")
        for index, item in enumerate(getattr(result, name))
    ]
    return {"hits": hits[:_MAX_HITS], "omitted": max(0, len(hits) - _MAX_HITS), "degraded": list(result.degraded)}


def recall_view(answer: Any) -> dict[str, Any]:
    """Return the hits of a search, or all candidates if the memory can explain its results.

    Args:
        answer: A `Recall` of agentkit's memory, or documents and messages of another memory.
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
            "kind": candidate.kind,
            "id": candidate.id,
            "title": "",
            "score": candidate.score,
            "parts": dict(candidate.parts),
            "used": candidate.used,
            "why": candidate.why,
            "text": candidate.text,
        }
        for candidate in candidates[:_MAX_HITS]
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
    """Return the parts of a score from a text such as `+1.24 = bm25 +0.65, dense +0.59 (bm25 1.48)`."""
    match = _REASON.match(why)
    if match is None:
        return {}
    parts: dict[str, float] = {}
    for part in match[1].split(", "):
        number = _NUMBER.search(part)
        if number is not None:
            parts[part[: number.start()].strip()] = float(number[1])
    return parts
