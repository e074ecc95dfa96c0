"""`IngestOptions`: which fields of a record are text, the alt texts of images, and whether damaged files are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from agentkit_memory.errors import IngestError, InvalidArgument
from agentkit_prompts.options import options

__all__ = ["IngestOptions", "given_options"]


def _as_tuple(names: object) -> object:
    if isinstance(names, list):
        return tuple(names)
    return names


_Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


def _invalid(message: str) -> IngestError:
    source, _, problem = message.partition(": ")
    return IngestError(source, problem)


def _unknown(message: str, meant: object) -> InvalidArgument:
    return InvalidArgument(message)


@options(_invalid, unknown=_unknown)
class IngestOptions:
    """How to read files. The fields of a record of a JSON lines file are named; a dotted name looks inside of objects.

    Raises:
        IngestError: An option is of the wrong kind, or `record_text` is empty; names every problem.
        InvalidArgument: There is no such option.
    """

    lenient: bool = False
    """Whether to store the readable parts of a damaged file: bytes that are not text become U+FFFD; records and pages
    that cannot be read are left out. `IngestReport.repaired` reports both. Otherwise such a file is refused."""
    record_text: Annotated[_Names, Field(min_length=1)] = ("text", "content", "body")
    """The text of a record: those of these fields that it has, one paragraph each. It must have one."""
    record_title: _Names = ("title",)
    """Its title: the first of these fields that it has."""
    record_metadata: _Names | None = None
    """Fields to keep with the chunks; None: all others that are numbers, true, false, or texts of up to 500
    characters."""
    alt_text: Callable[[Path], str | None] | None = None
    """Returns the alt text of an image file, by which it is recalled. It is asked about every PNG, JPEG, GIF and WebP
    file each time; without it, images in folders are skipped."""

    @property
    def record_key(self) -> str:
        """What the chunks of a JSON lines file depend on besides its bytes."""
        return repr((self.record_text, self.record_title, self.record_metadata))


def given_options(given: object, on_progress: object) -> IngestOptions:
    """Return the given options, or the default ones.

    Raises:
        IngestError: They are not `IngestOptions`, or `on_progress` is not callable.
    """
    if not isinstance(given, IngestOptions | None):
        raise IngestError("ingest", f"expected IngestOptions(...) as the options, got {given!r}", name="options")
    if on_progress is not None and not callable(on_progress):
        raise IngestError(
            "ingest", f"expected a function to call with the progress, got {on_progress!r}", name="on_progress"
        )
    return given or IngestOptions()
