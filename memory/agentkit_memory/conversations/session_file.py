"""A file of conversations, as JSON lines: all lines are checked, and then appended with keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentkit_memory.conversations.message_rows import dump
from agentkit_memory.conversations.removal import open_branch
from agentkit_memory.conversations.session_arguments import check_append
from agentkit_memory.conversations.unread_append import append_unread
from agentkit_memory.database.engine import Database
from agentkit_memory.errors import IngestError, InvalidArgument, StoreError
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.scope import Scope, check_name
from agentkit_memory.store.scope_rows import scope_id
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError, Problem, brief
from agentkit_prompts.limits import MAX_INPUT_BYTES
from agentkit_prompts.names import nearest
from agentkit_prompts.system.regular_files import bounded_lines, open_regular

_FIELDS = ("session", "messages", "key", "said_at")
_MAX_PROBLEMS = 20
"""Maximum number of lines with problems in an error."""
_STEP = 500
"""Number of lines between two calls of `on_progress`."""


@dataclass(frozen=True, slots=True)
class SessionImport:
    """Progress, or result, of an import of conversations."""

    lines: int
    """Lines whose messages are stored."""
    added: int
    """Messages that this call added; the messages of the other lines were stored before."""
    done_bytes: int
    """Bytes of these lines."""
    total_bytes: int
    """Bytes of all lines."""


class _Line(NamedTuple):
    """A valid line: one append."""

    session: str
    messages: tuple[Message, ...]
    key: str
    said_at: float | None


def import_sessions(
    database: Database, scope: Scope, path: Path, on_progress: Callable[[SessionImport], None] | None
) -> SessionImport:
    """Append the messages of a file to conversations of a scope; see `Admin.import_sessions`."""
    total = _check(path)
    scope_number = scope_id(database, scope)
    done = SessionImport(0, 0, 0, total)
    for number, text in _lines(path):
        line = _read(number, text)
        added = 0
        try:
            branch = open_branch(database, scope_number, line.session)
            if branch.seq_of(line.key) is None:
                added = len(line.messages)
            # The append compares the messages of a key that was used before.
            append_unread(branch, line.messages, line.key, line.said_at, False)
        except InvalidArgument:
            raise
        except StoreError as error:
            error.add_note(f"{path}, line {number}; the lines before are stored: repeat the call to continue")
            raise
        done = SessionImport(done.lines + 1, done.added + added, done.done_bytes + len(text or b""), total)
        failpoint("sessions.line")
        if on_progress is not None and done.lines % _STEP == 0:
            on_progress(done)
    if on_progress is not None:
        on_progress(done)
    return done


def _check(path: Path) -> int:
    """Check all lines; return the number of their bytes.

    Raises:
        IngestError: The file cannot be read, or lines are invalid: names the lines and all their problems.
    """
    total = 0
    problems: list[Problem] = []
    # Keys by their digests, because a file may have millions of lines.
    keys: dict[bytes, int] = {}
    for number, text in _lines(path):
        total += len(text or b"")
        try:
            line = _read(number, text)
        except StoreError as error:
            problems.append(Problem(f"line {number}", str(error)))
            continue
        digest = hashlib.blake2b(f"{line.session}\0{line.key}".encode(), digest_size=16).digest()
        first = keys.setdefault(digest, number)
        if first != number:
            problems.append(Problem(f"line {number}", f"key: {line.key!r} is the key of line {first} too"))
    if problems:
        listed = "; ".join(map(str, problems[:_MAX_PROBLEMS]))
        if len(problems) > _MAX_PROBLEMS:
            listed += f"; and {len(problems) - _MAX_PROBLEMS} more lines"
        raise IngestError(str(path), f"nothing was stored: {listed}", path=str(path), problems=problems)
    return total


def _lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line that is not empty; None instead of a line that is too long."""
    try:
        with open_regular(path) as file:
            for number, text in bounded_lines(file, MAX_INPUT_BYTES):
                if text is None or text.strip():
                    yield number, text
    except OSError as error:
        raise IngestError(
            str(path), f"cannot be read ({error.strerror or type(error).__name__})", path=str(path)
        ) from error


def _read(number: int, text: bytes | None) -> _Line:
    """Return a line.

    Raises:
        InvalidArgument: The line is invalid; lists all problems.
    """
    if text is None:
        raise InvalidArgument(
            f"longer than {MAX_INPUT_BYTES:,} bytes: append the messages in several lines", name="line", value=number
        )
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"expected JSON ({brief(str(error))})") from None
    if not isinstance(row, Mapping):
        raise InvalidArgument(f"expected an object with session and messages, got {brief(row)}")
    problems = [f"unknown field {name!r}{nearest(name, _FIELDS)}" for name in row if name not in _FIELDS]
    session, key, said_at = row.get("session"), row.get("key"), row.get("said_at")
    if key is None:
        # A repeated call finds the line by its number and its content.
        key = f"line {number} {hashlib.blake2b(text.strip(), digest_size=12).hexdigest()}"
    if session == "":
        problems.append("session: a name cannot be empty")
    problems += _problems(check_name, "session", session)
    problems += _problems(check_append, key, None)
    problems += _problems(check_append, None, said_at)
    messages: tuple[Message, ...] = ()
    try:
        messages = _messages(row.get("messages"))
    except InvalidArgument as error:
        problems.append(str(error))
    if problems:
        raise InvalidArgument("; ".join(problems))
    return _Line(str(session), messages, str(key), said_at)


def _problems(check: Callable[..., None], *values: object) -> list[str]:
    """Return the problem that a check finds, if any."""
    try:
        check(*values)
    except InvalidArgument as error:
        return [str(error)]
    return []


def _messages(value: Any) -> tuple[Message, ...]:
    """Return the messages of a line, which can be stored.

    Raises:
        InvalidArgument: A message is invalid, or the list is empty.
    """
    if not isinstance(value, list) or not value:
        raise InvalidArgument(f"messages: expected a list of messages, got {brief(value)}", name="messages")
    try:
        messages = read_messages(value, where="messages")
    except MessageError as error:
        raise InvalidArgument(str(error), problems=error.problems) from error
    for message in messages:
        dump("messages", message)
    return messages
