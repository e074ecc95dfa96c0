"""What may be said about an ingestion: which fields of a record count, and what to do with what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkit_memory.errors import IngestError

__all__ = ["IngestOptions", "RecordFields", "given_options"]


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Which fields of the records of a JSON lines file are what. A dotted name looks inside of objects.

    Raises:
        IngestError: They are no names, or there is none of a text.
    """

    text: tuple[str, ...] = ("text", "content", "body")
    """Those of these that a record has are its text, one paragraph each. It must have one."""
    title: tuple[str, ...] = ("title",)
    """The first of these that a record has is its title."""
    metadata: tuple[str, ...] | None = None
    """Fields to keep with the passages; None: all others that are numbers, true, false, or texts of up to 500
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
        """What the passages of a file depend on besides its bytes."""
        return repr((self.text, self.title, self.metadata))


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read files.

    Raises:
        IngestError: An option is of the wrong kind.
    """

    lenient: bool = False
    """Whether to take what can be read of a damaged file: bytes that are no text become U+FFFD; records and pages that
    cannot be read are left out. Both are told in `IngestReport.mended`. Otherwise such a file is refused."""
    records: RecordFields = field(default_factory=RecordFields)

    def __post_init__(self) -> None:
        if not isinstance(self.lenient, bool):
            raise IngestError("IngestOptions.lenient", f"expected True or False, got {self.lenient!r}")
        if not isinstance(self.records, RecordFields):
            raise IngestError("IngestOptions.records", f"expected RecordFields(...), got {self.records!r}")


def given_options(options: object, on_progress: object) -> IngestOptions:
    """Return the options that were given, or those that hold where there are none.

    Raises:
        IngestError: They are no options, or the progress cannot be told.
    """
    if not isinstance(options, IngestOptions | None):
        raise IngestError("ingest", f"expected IngestOptions(...) as the options, got {options!r}")
    if on_progress is not None and not callable(on_progress):
        raise IngestError("ingest", f"expected a function to call with the progress, got {on_progress!r}")
    return options or IngestOptions()
