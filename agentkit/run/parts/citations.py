"""Citations: which documents an answer names by their labels, and the labels in it that no document has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import Document
from agentkit_prompts.errors import ContextError

__all__ = ["Citation", "citation_form", "citations", "unknown_labels"]

_BRACKETS = re.compile(r"\[([^\[\]\n]+)\]")
_ONE = re.compile(r"[^,;]+")
_LABEL = '"label"'
_POINTER = re.compile(r"documents(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class Citation:
    """One use of a label in an answer."""

    label: str
    document: Document
    start: int
    """Where the label begins in the text of the answer, without its bracket."""
    end: int
    """Where it ends there."""


def citation_form(citation: Citation) -> dict[str, Any]:
    """Return a citation as JSON data, with where its document is from and the text of that."""
    document = citation.document
    return {
        "label": citation.label,
        "start": citation.start,
        "end": citation.end,
        "source": document.source,
        "title": document.title,
        "text": document.text,
    }


def citations(text: str, composition: Composition) -> tuple[Citation, ...]:
    """Return the citations of `text`, in order: labels in brackets, `[a.md#1]` or `[a.md#1, b.md#2]`, of documents that
    the composition shows, or that a tool returned whose result it shows.
    """
    known = _shown(composition)
    return tuple([Citation(text[start:end], known[text[start:end]], start, end) for start, end in _labels(text, known)])


def unknown_labels(text: str, composition: Composition) -> tuple[str, ...]:
    """Return what stands in brackets like a label, `SOURCE#CHUNK`, and is that of no document the composition shows."""
    known = _shown(composition)
    named = {text[start:end] for start, end in _labels(text, known)}
    found = [
        piece.strip()
        for inner in _BRACKETS.findall(text)
        if inner.strip() not in named
        for piece in _ONE.findall(inner)
    ]
    return tuple(dict.fromkeys([label for label in found if "#" in label and label not in named]))


def _labels(text: str, known: dict[str, Document]) -> Iterator[tuple[int, int]]:
    """Yield where known labels stand in brackets: one, or several with a comma or semicolon between them."""
    if not known:
        return
    for brackets in _BRACKETS.finditer(text):
        whole = [brackets.span(1)]
        pieces = (
            whole
            if brackets[1].strip() in known
            else [
                (brackets.start(1) + piece.start(), brackets.start(1) + piece.end())
                for piece in _ONE.finditer(brackets[1])
            ]
        )
        for first, last in pieces:
            piece = text[first:last]
            start = first + len(piece) - len(piece.lstrip())
            end = start + len(piece.strip())
            if text[start:end] in known:
                yield start, end


def _shown(composition: Composition) -> dict[str, Document]:
    """Return the documents that a composition shows, in whole or in part, by their labels; its own before a tool's."""
    found = {one.label: one for message in composition.intermediate for one in _returned(message)}
    documents: tuple[Document, ...] = composition.context.view["documents"]
    if not documents:
        return found
    shown: set[int] = set()
    for span in composition.spans:
        for pointer in span.pointer.split(", "):
            if (place := _POINTER.match(pointer)) and place[1] is None:
                return found | {document.label: document for document in documents}
            if place:
                shown.add(int(place[1]))
    return found | {document.label: document for at, document in enumerate(documents) if at in shown}


def _returned(message: Message) -> Iterator[Document]:
    """Yield the documents that a tool returned, which its result holds as JSON."""
    if message.role != "tool" or _LABEL not in message.text:
        return
    try:
        data = json.loads(message.text)
    except (ValueError, RecursionError):  # it was cut
        return
    for one in data if isinstance(data, list) else (data,):
        if isinstance(one, dict) and isinstance(one.get("text"), str) and isinstance(one.get("label"), str):
            given = {name: one[name] for name in ("text", "label", "title", "source") if isinstance(one.get(name), str)}
            with suppress(ContextError):
                yield Document(**given)
