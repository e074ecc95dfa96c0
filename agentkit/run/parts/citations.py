"""Citations: labels in an answer, with their documents; and labels that match no document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import Document
from agentkit_prompts.errors import ContextError

_BRACKETS = re.compile(r"\[([^\[\]\n]+)\]")
_PIECE = re.compile(r"[^,;]+")
"""Text between the separators in brackets."""
_LABEL = '"label"'
"""Text that is part of each tool result with documents; other results are not parsed as JSON."""
_POINTER = re.compile(r"documents(?:\[(\d+)\])?")
"""Pointer of a span that shows one document or all documents."""


@dataclass(frozen=True, slots=True)
class Citation:
    """One use of a label in an answer."""

    label: str
    document: Document
    start: int
    """Index of the first character of the label in the answer, after the bracket."""
    end: int
    """Index after the last character of the label."""


def citation_form(citation: Citation) -> dict[str, Any]:
    """Return a citation as JSON data, with the source, title and text of its document."""
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
    """Return the citations of `text` in order.

    A citation is a label in brackets, such as `[a.md#1]` or `[a.md#1, b.md#2]`, of a document in the composition or in
    one of its tool results.
    """
    documents = _documents(composition)
    spans = _label_spans(text, documents)
    return tuple([Citation(text[start:end], documents[text[start:end]], start, end) for start, end in spans])


def unknown_labels(text: str, composition: Composition) -> tuple[str, ...]:
    """Return the texts in brackets, such as `SOURCE#CHUNK`, that are no label of a document in the composition."""
    documents = _documents(composition)
    cited = {text[start:end] for start, end in _label_spans(text, documents)}
    candidates: list[str] = []
    for inner in _BRACKETS.findall(text):
        if inner.strip() not in cited:
            candidates += [piece.strip() for piece in _PIECE.findall(inner)]
    return tuple(dict.fromkeys([label for label in candidates if "#" in label and label not in cited]))


def _label_spans(text: str, documents: dict[str, Document]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each label of `documents` in brackets, where commas or semicolons separate labels."""
    if not documents:
        return
    for brackets in _BRACKETS.finditer(text):
        offset, inner = brackets.start(1), brackets[1]
        # A label can contain a comma or semicolon: the whole text is tried first.
        pieces = [(0, len(inner))]
        if inner.strip() not in documents:
            pieces = [piece.span() for piece in _PIECE.finditer(inner)]
        for first, last in pieces:
            piece = inner[first:last]
            label = piece.strip()
            if label in documents:
                start = offset + first + len(piece) - len(piece.lstrip())
                yield start, start + len(label)


def _documents(composition: Composition) -> dict[str, Document]:
    """Return the documents that a composition shows, whole or cut, and the documents in its tool results, by label.

    If a shown document and a document of a tool result have the same label, the shown document is returned.
    """
    from_tools = {
        document.label: document for message in composition.intermediate for document in _tool_documents(message)
    }
    documents: tuple[Document, ...] = composition.context.view["documents"]
    return from_tools | {document.label: document for document in _shown_documents(documents, composition)}


def _shown_documents(documents: tuple[Document, ...], composition: Composition) -> Iterable[Document]:
    """Return the documents to which a span of the composition refers."""
    if not documents:
        return ()
    indexes: set[int] = set()
    for span in composition.spans:
        for pointer in span.pointer.split(", "):
            match = _POINTER.match(pointer)
            if match is None:
                continue
            if match[1] is None:  # the pointer has no index: the span shows all documents
                return documents
            indexes.add(int(match[1]))
    return [document for index, document in enumerate(documents) if index in indexes]


def _tool_documents(message: Message) -> Iterator[Document]:
    """Yield the documents that a tool result contains as JSON; no documents if the message is no such result."""
    if message.role != "tool" or _LABEL not in message.text:
        return
    try:
        data = json.loads(message.text)
    except (ValueError, RecursionError):  # the result was cut
        return
    if not isinstance(data, list):
        data = [data]
    for row in data:
        if not isinstance(row, dict):
            continue
        fields = {name: row[name] for name in ("text", "label", "title", "source") if isinstance(row.get(name), str)}
        if "text" in fields and "label" in fields:
            with suppress(ContextError):
                yield Document(**fields)
