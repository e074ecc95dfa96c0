"""What may be said about an ingestion: which fields of a record count, and what to do with what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["IngestOptions", "RecordFields"]


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Which fields of the records of a JSON lines file are what. A dotted name looks inside of objects."""

    text: tuple[str, ...] = ("text", "content", "body")
    """Those of these that a record has are its text, one paragraph each. It must have one."""
    title: tuple[str, ...] = ("title",)
    """The first of these that a record has is its title."""
    metadata: tuple[str, ...] | None = None
    """Fields to keep with the passages; None: all others that are numbers, true, false, or texts of up to 500
    characters."""

    def __post_init__(self) -> None:
        for name in ("text", "title", "metadata"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"RecordFields.{name}: expected a tuple of names, got the text {getattr(self, name)!r}")
        if not self.text:
            raise ValueError("RecordFields.text: name at least one field")

    @property
    def key(self) -> str:
        """What the passages of a file depend on besides its bytes."""
        return repr((self.text, self.title, self.metadata))


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read files."""

    lenient: bool = False
    """Whether to take what can be read of a damaged file: bytes that are no text become U+FFFD; records and pages that
    cannot be read are left out. Both are told in `IngestReport.mended`. Otherwise such a file is refused."""
    records: RecordFields = field(default_factory=RecordFields)
