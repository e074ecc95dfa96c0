"""`IngestOptions`: which fields of a record are text, the alt texts of images, and whether damaged files are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentkit_memory.errors import IngestError, InvalidArgument
from agentkit_prompts.names import reject_unknown_fields

__all__ = ["IngestOptions", "given_options"]


@reject_unknown_fields(InvalidArgument)
@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read files. The fields of a record of a JSON lines file are named; a dotted name looks inside of objects.

    Raises:
        IngestError: An option is of the wrong kind, or `record_text` is empty; names every problem.
        InvalidArgument: There is no such option.
    """

    lenient: bool = False
    """Whether to store the readable parts of a damaged file: bytes that are not text become U+FFFD; records and pages
    that cannot be read are left out. `IngestReport.repaired` reports both. Otherwise such a file is refused."""
    record_text: tuple[str, ...] = ("text", "content", "body")
    """The text of a record: those of these fields that it has, one paragraph each. It must have one."""
    record_title: tuple[str, ...] = ("title",)
    """Its title: the first of these fields that it has."""
    record_metadata: tuple[str, ...] | None = None
    """Fields to keep with the chunks; None: all others that are numbers, true, false, or texts of up to 500
    characters."""
    alt_text: Callable[[Path], str | None] | None = None
    """Returns the alt text of an image file, by which it is recalled. It is asked about every PNG, JPEG, GIF and WebP
    file each time; without it, images in folders are skipped."""

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.lenient, bool):
            problems.append(f"lenient: expected True or False, got {self.lenient!r:.80}")
        for name in ("record_text", "record_title", "record_metadata"):
            names: object = getattr(self, name)
            if names is None and name == "record_metadata":
                continue
            if not isinstance(names, tuple | list) or not all(isinstance(each, str) for each in names):
                problems.append(f"{name}: expected a tuple of names, got {names!r:.80}")
            elif not names and name == "record_text":
                problems.append(f"{name}: name at least one field")
        if self.alt_text is not None and not callable(self.alt_text):
            expected = "expected a function from the path of an image to its alt text"
            problems.append(f"alt_text: {expected}, got {self.alt_text!r:.80}")
        if problems:
            names = ", ".join([problem.partition(":")[0] for problem in problems])
            raise IngestError("IngestOptions", "; ".join(problems), name=names)

    @property
    def record_key(self) -> str:
        """What the chunks of a JSON lines file depend on besides its bytes."""
        return repr((self.record_text, self.record_title, self.record_metadata))


def given_options(options: object, on_progress: object) -> IngestOptions:
    """Return the given options, or the default ones.

    Raises:
        IngestError: They are not `IngestOptions`, or `on_progress` is not callable.
    """
    if not isinstance(options, IngestOptions | None):
        raise IngestError("ingest", f"expected IngestOptions(...) as the options, got {options!r}", name="options")
    if on_progress is not None and not callable(on_progress):
        raise IngestError(
            "ingest", f"expected a function to call with the progress, got {on_progress!r}", name="on_progress"
        )
    return options or IngestOptions()
