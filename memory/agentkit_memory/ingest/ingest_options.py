"""`IngestOptions`: which fields of a record are text, and whether damaged files are stored in part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentkit_memory.errors import IngestError

__all__ = ["IngestOptions", "RecordFields", "given_options"]


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of a record of a JSON lines file. A dotted name looks inside of objects.

    Raises:
        IngestError: The names are not text, or `text` is empty.
    """

    text: tuple[str, ...] = ("text", "content", "body")
    """Its text: those of these fields that it has, one paragraph each. It must have one."""
    title: tuple[str, ...] = ("title",)
    """Its title: the first of these fields that it has."""
    metadata: tuple[str, ...] | None = None
    """Fields to keep with the chunks; None: all others that are numbers, true, false, or texts of up to 500
    characters."""

    def __post_init__(self) -> None:
        for name in ("text", "title", "metadata"):
            names = getattr(self, name)
            if names is None and name == "metadata":
                continue
            if not isinstance(names, tuple | list) or not all(isinstance(each, str) for each in names):
                raise IngestError(f"RecordFields.{name}", f"expected a tuple of names, got {names!r}")
        if not self.text:
            raise IngestError("RecordFields.text", "name at least one field")

    @property
    def key(self) -> str:
        """What the chunks of a file depend on besides its bytes."""
        return repr((self.text, self.title, self.metadata))


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read files.

    Raises:
        IngestError: An option is of the wrong kind.
    """

    lenient: bool = False
    """Whether to store the readable parts of a damaged file: bytes that are not text become U+FFFD; records and pages
    that cannot be read are left out. `IngestReport.repaired` reports both. Otherwise such a file is refused."""
    records: RecordFields = field(default_factory=RecordFields)
    alt_text: Callable[[Path], str | None] | None = None
    """Returns the alt text of an image file, by which it is recalled. It is asked about every PNG, JPEG, GIF and WebP
    file each time; without it, images in folders are skipped."""

    def __post_init__(self) -> None:
        if not isinstance(self.lenient, bool):
            raise IngestError("IngestOptions.lenient", f"expected True or False, got {self.lenient!r}")
        if not isinstance(self.records, RecordFields):
            raise IngestError("IngestOptions.records", f"expected RecordFields(...), got {self.records!r}")
        if self.alt_text is not None and not callable(self.alt_text):
            expected = "expected a function from the path of an image to its alt text"
            raise IngestError("IngestOptions.alt_text", f"{expected}, got {self.alt_text!r:.80}")


def given_options(options: object, on_progress: object) -> IngestOptions:
    """Return the given options, or the default ones.

    Raises:
        IngestError: They are not `IngestOptions`, or `on_progress` is not callable.
    """
    if not isinstance(options, IngestOptions | None):
        raise IngestError("ingest", f"expected IngestOptions(...) as the options, got {options!r}")
    if on_progress is not None and not callable(on_progress):
        raise IngestError("ingest", f"expected a function to call with the progress, got {on_progress!r}")
    return options or IngestOptions()
