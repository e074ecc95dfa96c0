"""Citations of web pages that a provider sends with a reply: annotations, search results and lists of addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentkit.run.parts.citations import Citation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.prompt_context import Document
from agentkit_prompts.errors import ContextError

_KEYS = ("annotations", "citations")
"""Keys of the lists of citations: of chat completions and the Responses API, and of Anthropic."""


class _Passage(NamedTuple):
    """A part of a reply, and the data of its provider."""

    start: int
    text: str
    opaque: Mapping[str, Any]


def web_citations(message: Message) -> tuple[Citation, ...]:
    """Return the citations of web pages in a reply, in their order: `label` and `source` are the address of the page.

    `start` and `end` are positions in the text of the reply; the whole passage if the provider sent no positions.
    """
    citations = [
        citation
        for passage in _passages(message)
        for entry in _entries(passage.opaque)
        if (citation := _citation(entry, passage)) is not None
    ]
    return tuple(dict.fromkeys(citations))


def _passages(message: Message) -> Iterator[_Passage]:
    yield _Passage(0, message.text, message.opaque)
    start = 0
    for part in message.parts:
        if isinstance(part, Text):
            yield _Passage(start, part.text, part.opaque)
            start += len(part.text)


def _entries(opaque: Mapping[str, Any]) -> Iterator[object]:
    for data in opaque.values():
        if not isinstance(data, Mapping):
            continue
        for key in _KEYS:
            entries = data.get(key)
            if isinstance(entries, list | tuple):
                yield from entries


def _citation(entry: object, passage: _Passage) -> Citation | None:
    """Return the citation of an entry; None if the entry names no web page, such as the citation of a file."""
    fields: object = entry
    if isinstance(entry, str) and entry.startswith(("https://", "http://")):
        fields = {"url": entry}
    elif isinstance(entry, Mapping):
        fields = entry.get("url_citation", entry)
    if not isinstance(fields, Mapping):
        return None
    url = fields.get("url")
    if not isinstance(url, str) or not url:
        return None
    text = _text(fields.get("cited_text")) or _text(fields.get("content"))
    try:
        document = Document(text, source=url, title=_text(fields.get("title")))
    except ContextError:
        return None
    start, end = fields.get("start_index"), fields.get("end_index")
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end <= len(passage.text):
        start, end = 0, len(passage.text)
    return Citation(url, document, passage.start + start, passage.start + end)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
