"""Reader of JSON lines: every record is a separate section, with a title and metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks, with_newlines
from agentkit_memory.store.metadata import written_metadata
from agentkit_prompts.context.json_form import strict_json
from agentkit_prompts.names import nearest
from agentkit_prompts.pages.page_blocks import MAX_TITLE, Block

MAX_RECORD = 16 * 1024 * 1024
"""Maximum characters of one line, which is read into memory."""

_MAX_VALUE = 500
"""Maximum characters of a text that is metadata by default."""
_ABSENT = object()
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _BadRecord(Exception):
    """A line is not a valid record; the message continues "line N"."""


def record_blocks(reading: FileStream) -> Iterator[Block | SectionStart]:
    """Yield every record as a section. Invalid records are reported as problems of the file."""
    options = reading.options
    for number, line in _lines(with_newlines(reading.text())):
        try:
            text, title, meta = _record(line, options)
        except _BadRecord as problem:
            reading.problem(f"line {number} {problem}")
            continue
        if text and not reading.refused:
            yield SectionStart(meta, title, number, is_separate=True)
            yield from text_blocks([text], markdown=False)


def _lines(pieces: Iterator[str]) -> Iterator[tuple[int, str | None]]:
    """Yield number and text of each line that is not blank; None instead of a text that is too long."""
    texts: list[str] = []
    size, number = 0, 1
    for piece in chain(pieces, ["\n"]):
        for position, text in enumerate(piece.split("\n")):
            if position:
                line = "".join(texts)
                if size > MAX_RECORD:
                    yield number, None
                elif line.strip():
                    yield number, line
                texts, size, number = [], 0, number + 1
            size += len(text)
            if size <= MAX_RECORD:
                texts.append(text)
            else:
                texts.clear()


def _record(line: str | None, options: IngestOptions) -> tuple[str, str, str]:
    """Return the text, the title and the metadata of a record.

    Raises:
        _BadRecord: The line is not a valid record.
    """
    record = _parsed(line)
    text = "\n\n".join(_texts(record, options))
    titles = [title for name in options.record_title if isinstance(title := _find(record, name), str)]
    title = ""
    if titles:
        title = " ".join(titles[0].split())[:MAX_TITLE]
    try:
        meta = written_metadata(_metadata(record, options), ascii_only=False)
    except ValueError as error:
        raise _BadRecord(f"has metadata that {error}") from None
    return _storable(text, options.lenient), _storable(title, options.lenient), _storable(meta, options.lenient)


def _parsed(line: str | None) -> Mapping[str, Any]:
    if line is None:
        raise _BadRecord(f"is longer than {MAX_RECORD:,} characters")
    try:
        record = strict_json(line)
    except ValueError as error:
        raise _BadRecord(f"is not JSON ({str(error)[:100]})") from None
    except RecursionError:
        raise _BadRecord("is not JSON (nested too deeply)") from None
    if not isinstance(record, Mapping):
        raise _BadRecord(f"is not an object but {type(record).__name__}")
    return record


def _texts(record: Mapping[str, Any], options: IngestOptions) -> list[str]:
    """Return the texts of a record, at least one."""
    texts = [text for name in options.record_text if (text := _find(record, name)) is not _ABSENT and text is not None]
    if not texts:
        wanted = " or ".join(repr(name) for name in options.record_text)
        raise _BadRecord(f"has no field {wanted}{nearest(options.record_text[0], [str(name) for name in record])}")
    for text in texts:
        if not isinstance(text, str):
            raise _BadRecord(f"has a text that is not a string but {type(text).__name__}")
    return texts


def _metadata(record: Mapping[str, Any], options: IngestOptions) -> dict[str, Any]:
    if options.record_metadata is not None:
        return {name: value for name in options.record_metadata if (value := _find(record, name)) is not _ABSENT}
    used = {*options.record_text, *options.record_title}
    return {
        name: value
        for name, value in record.items()
        if name not in used
        and (isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _MAX_VALUE))
    }


def _find(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field; a name with dots may be a path into nested objects. `_ABSENT` if it is missing."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _storable(text: str, lenient: bool) -> str:
    """Return a text that every database accepts: JSON escapes can create NUL and unpaired surrogates.

    With `lenient`, such characters are replaced.

    Raises:
        _BadRecord: The text contains such characters.
    """
    if lenient:
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if match := _UNSTORABLE.search(text):
        raise _BadRecord(f"contains \\u{ord(match[0]):04x}, which cannot be stored")
    return text
