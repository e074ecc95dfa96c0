"""`IngestOptions`: the text fields of records, the alt texts of images, and the handling of corrupt files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from agentkit_memory.errors import IngestError, InvalidArgument
from agentkit_prompts.options import options


def _as_tuple(names: object) -> object:
    if isinstance(names, list):
        return tuple(names)
    return names


_Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


def _invalid(message: str) -> IngestError:
    source, _, problem = message.partition(": ")
    return IngestError(source, problem)


def _unknown(message: str, suggestion: object) -> InvalidArgument:
    return InvalidArgument(message)


@options(_invalid, unknown=_unknown)
class IngestOptions:
    """Options for reading files. In a name of a field of a JSON lines record, a dot enters a nested object.

    Raises:
        IngestError: An option has the wrong type, or `record_text` is empty; the error names every problem.
        InvalidArgument: An option is unknown.
    """

    lenient: bool = False
    """True to store the readable parts of a corrupt file: bytes that are not text become U+FFFD; records and pages
    that cannot be read are left out. `IngestReport.repaired` lists such files. False to refuse such files."""
    record_text: Annotated[_Names, Field(min_length=1)] = ("text", "content", "body")
    """Fields with the text of a record, one paragraph each. A record needs at least one of these fields. An ingestion
    without a JSON lines file refuses the options of records, which it would ignore."""
    record_title: _Names = ("title",)
    """Fields with the title of a record; the first existing field is used."""
    record_metadata: _Names | None = None
    """Fields to store with the chunks; None for all other fields that are numbers, true, false, or texts of up to 500
    characters."""
    alt_text: Callable[[Path], str | None] | None = None
    """Function that returns the alt text of an image file, by which the image is recalled. It is called for every PNG,
    JPEG, GIF and WebP file on each ingestion. Without this function, images in folders are skipped."""


def record_key(options: IngestOptions) -> str:
    """Return a text of the options that change the chunks of JSON lines files."""
    return repr((options.record_text, options.record_title, options.record_metadata))


def record_options(options: IngestOptions) -> list[str]:
    """Return the names of the options of JSON lines files that have another value than the default."""
    default = IngestOptions()
    names = ("record_text", "record_title", "record_metadata")
    return [name for name in names if getattr(options, name) != getattr(default, name)]


def checked_options(value: object, on_progress: object) -> IngestOptions:
    """Return the options of a call, or the default options.

    Raises:
        IngestError: The value is not `IngestOptions`, or `on_progress` is not callable.
    """
    if not isinstance(value, IngestOptions | None):
        raise IngestError("ingest", f"expected IngestOptions(...) as the options, got {value!r}", name="options")
    if on_progress is not None and not callable(on_progress):
        raise IngestError(
            "ingest", f"expected a function to call with the progress, got {on_progress!r}", name="on_progress"
        )
    return value or IngestOptions()
