"""`SourceFiles`: the files that contain the texts of an agent, and their changes."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.improve.improve_errors import FilesChanged, ImproveError
from agentkit.improve.text_parts import TextPart, examples_of
from agentkit.improve.yaml_edit import values_of, with_values
from agentkit_prompts.errors import Problem, raise_problems
from agentkit_prompts.system.flushed_files import replace_files
from agentkit_prompts.system.regular_files import read_regular


class _Place(NamedTuple):
    """Place of the text of a part."""

    file: Path
    line: int = 0
    """Line of a prompt file at which the text starts, counted from 1; 0 for an agent file."""
    key: str = ""
    """Key of an agent file."""


class SourceFiles:
    """The files of the texts of an agent, as they were when the object was created.

    Args:
        agent: The agent; texts of an agent without a file are only in prompt files.
        parts: The parts.
    """

    def __init__(self, agent: object, parts: Sequence[TextPart]) -> None:
        self._texts: dict[Path, str] = {}
        """Texts of the files, with their line ends."""
        self._places: dict[str, _Place] = {}
        self._agent_file = _agent_file(agent)
        for part in parts:
            place = self._place(part, self._agent_file)
            if place is not None:
                self._places[part.name] = place

    def _place(self, part: TextPart, agent_file: Path | None) -> _Place | None:
        """Return the place of a part; None if its text is in no file."""
        if part.kind == "prompt" and part.prompt is not None:
            name, line = part.prompt.template.first_place
            text = None if name is None else self._read(Path(name))
            if name is not None and text is not None and _body(text, line) == part.text:
                return _Place(Path(name), line)
            if agent_file is None or self._values(agent_file).get("instructions") != part.text:
                return None
            return _Place(agent_file, key="instructions")
        if agent_file is None or self._read(agent_file) is None:
            return None
        return _Place(agent_file, key={"description": "descriptions", "examples": "examples"}[part.kind])

    def _absence(self, part: TextPart) -> str:
        """Return the reason why the text of a part is in no file, and the remedy."""
        file = self._agent_file
        if part.kind == "prompt" and part.prompt is not None:
            name, _ = part.prompt.template.first_place
            if name is not None:
                file = Path(name)
            elif file is not None and "instructions" not in self._values(file):
                file = None
        if file is None:
            return (
                "its text is in Python code: copy it from `result.texts`, or move it to a prompt file or an agent file"
            )
        if self._read(file) is None:
            return f"{file.as_posix()} cannot be read: copy it from `result.texts`"
        return f"{file.as_posix()} was changed since the agent was loaded: load the agent and optimise again"

    def _read(self, file: Path) -> str | None:
        """Return the text of a file; None if it cannot be read."""
        if file not in self._texts:
            text = _file_text(file)
            if text is None:
                return None
            self._texts[file] = text
        return self._texts[file]

    def _values(self, file: Path) -> Mapping[str, Any]:
        """Return the values of an agent file; empty if it cannot be read."""
        text = self._read(file)
        if text is None:
            return {}
        return values_of(file.as_posix(), _plain(text))

    def missing(self, parts: Sequence[TextPart]) -> list[str]:
        """Return the names of parts whose text is in no file."""
        return [part.name for part in parts if part.name not in self._places]

    def changed(self, parts: Sequence[TextPart], texts: Mapping[str, str]) -> dict[Path, str]:
        """Return the texts of the files that change.

        Args:
            parts: The parts whose text changes.
            texts: The new texts by the name of the part.

        Raises:
            ImproveError: A file cannot contain a text.
        """
        files: dict[Path, str] = {}
        values: dict[Path, dict[str, Any]] = {}
        for part in parts:
            place = self._places.get(part.name)
            if place is None:
                continue
            if place.line:
                files[place.file] = _with_body(self._texts[place.file], place.line, texts[part.name])
                continue
            keys = values.setdefault(place.file, {})
            if part.kind == "prompt":
                keys[place.key] = texts[part.name]
            elif part.kind == "examples":
                keys[place.key] = [
                    {"input": each.input, "output": each.output} for each in examples_of(texts[part.name])
                ]
            else:
                described = keys.setdefault(place.key, dict(self._values(place.file).get(place.key) or {}))
                described[part.tool] = texts[part.name]
        for file, keys in values.items():
            original = self._texts[file]
            files[file] = _in_form_of(original, with_values(file.as_posix(), _plain(original), keys))
        return files

    def diff(self, parts: Sequence[TextPart], texts: Mapping[str, str]) -> str:
        """Return the changes of the files as a unified diff; a part without a file is a file of its name."""
        unplaced = set(self.missing(parts))
        try:
            files = self.changed(parts, texts)
        except ImproveError:
            # A file has a form that cannot be changed: its texts are not lost.
            files, unplaced = {}, set(texts)
        diffs = [_unified(file.as_posix(), self._texts[file], text) for file, text in files.items()]
        diffs += [_unified(part.name, part.text, texts[part.name]) for part in parts if part.name in unplaced]
        return "".join(diffs)

    def write(self, parts: Sequence[TextPart], texts: Mapping[str, str]) -> list[Path]:
        """Write the changes, each file as a whole, and return the files.

        Raises:
            ImproveError: A part has no file.
            FilesChanged: A file was changed since this object was created.
            OSError: A file cannot be written.
        """
        missing = self.missing(parts)
        problems = [Problem(part.name, self._absence(part)) for part in parts if part.name in missing]
        raise_problems(ImproveError, "apply", problems, name="parts", value=", ".join(missing))
        files = self.changed(parts, texts)
        stale = [file.as_posix() for file in self._texts if file in files and _file_text(file) != self._texts[file]]
        if stale:
            raise FilesChanged(
                f"apply: changed since the optimisation read them: {', '.join(stale)}: merge `diff` by hand, or "
                "optimise again",
                path=stale[0],
                value=", ".join(stale),
            )
        _replace(files)
        return [*files]


def _agent_file(agent: object) -> Path | None:
    """Return the file of an agent; None for an agent of code."""
    if isinstance(agent, LoadedAgent) and agent.files:
        return Path(agent.source)
    return None


def _file_text(file: Path) -> str | None:
    try:
        return read_regular(file).decode("utf-8")
    except (OSError, ValueError):
        return None


def _plain(text: str) -> str:
    """Return the text of a file with LF line ends, and without its byte order mark."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")


def _in_form_of(original: str, text: str) -> str:
    """Return a plain text with the line ends and the byte order mark of another text."""
    if "\r\n" in original:
        text = text.replace("\n", "\r\n")
    if original.startswith("\ufeff"):
        text = "\ufeff" + text
    return text


def _body(text: str, line: int) -> str:
    """Return the text of a prompt file from a line."""
    return "\n".join(_plain(text).split("\n")[line - 1 :])


def _with_body(text: str, line: int, body: str) -> str:
    """Return the text of a prompt file with another body; front matter, mark and line ends stay."""
    old = _body(text, line)
    end = old[len(old.rstrip()) :]
    head = _plain(text).split("\n")[: line - 1]
    return _in_form_of(text, "\n".join([*head, body.rstrip() + end]))


def _unified(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join([line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines])


def _replace(files: Mapping[Path, str]) -> None:
    """Replace files and keep their modes."""
    drafts: dict[Path, Path] = {}
    try:
        for file, text in files.items():
            target = file.resolve()
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=".agentkit-", suffix=".tmp")
            drafts[Path(name)] = target
            with os.fdopen(handle, "wb") as out:
                out.write(text.encode())
            shutil.copymode(target, name)
        replace_files(drafts)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
