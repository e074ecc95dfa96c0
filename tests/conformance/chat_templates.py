"""Cases of Jinja chat templates: the text that `transformers` renders, from raw messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate


@lru_cache(maxsize=8)
def _source(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def check(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the id of a required case, and the difference of the text, or None."""
    if not case.get("required"):
        return
    now = datetime.fromisoformat(case["now"]) if case["now"] else None
    try:
        source = _source(folder / "chat_templates" / f"{case['template']}.jinja")
        template = JinjaChatTemplate(source, now=now, normalise=False)
        kwargs = {"add_generation_prompt": False, **case["kwargs"]}
        text = template.render(case["messages"], case["tools"], **kwargs)
    except ChatTemplateError as error:
        yield case["id"], f"raises {error}"
        return
    yield case["id"], _difference(text, case["expect"]["output"])


def _difference(text: str, expected: str) -> str | None:
    if text == expected:
        return None
    at = next((at for at, (one, other) in enumerate(zip(text, expected, strict=False)) if one != other), -1)
    at = at if at >= 0 else min(len(text), len(expected))
    return f"at {at}: {text[at : at + 60]!r} instead of {expected[at : at + 60]!r}"
