"""`JournalOutline`: a journal of which only requested steps are read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self, overload

from agentkit.models.model import Usage
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_lines import invalid_line, read_entry, unreadable_line
from agentkit.run.journal.journal_steps import Entry, JournalStep, journal_steps

_EFFECT = re.compile(r'\{"effect":"(\w+)"')
"""Start of the line of an entry."""
_INNER = re.compile(r'\{"call":("(?:[^"\\]|\\.)*+"),"line":')
"""Start of a line of an inner journal, before the line itself."""
_HEAD = '{"journal":'


class JournalOutline:
    """The head of a journal, the effects of its entries, and its entries, which are read when they are requested.

    Attributes:
        head: The journal without entries and without inner journals.
        entries: The entries.
        effects: The effect of each entry.
        inner: Outlines of agents that run as tools, by the ids of their calls.
        is_whole: False if the journal has further lines, which were not read.
    """

    def __init__(
        self, head: Journal, entries: Sequence[Entry], effects: Sequence[str], inner: Mapping[str, JournalOutline]
    ) -> None:
        self.head, self.entries, self.effects, self.inner = head, entries, effects, inner
        self.is_whole = True

    @classmethod
    def of(cls, journal: Journal, *, is_whole: bool = True) -> Self:
        """Return the outline of a journal; `is_whole` is False if the journal has only the first entries of a run."""
        entries = [*journal.entries]
        inner = {call: cls.of(each) for call, each in journal.inner.items()}
        outline = cls(journal, entries, [entry.effect for entry in entries], inner)
        outline.is_whole = is_whole
        return outline

    @classmethod
    def read(cls, text: str, *, is_whole: bool = True) -> Self:
        """Return the outline of a journal from its text, see `Journal.loads`.

        `is_whole` is False if the text has only the first lines of the journal.

        Raises:
            JournalError: The first line cannot be read. Other lines are read when their entries are requested.
        """
        head, *lines = text.split("\n")
        outline = cls._read(head, lines[:-1])
        outline.is_whole = is_whole
        return outline

    @classmethod
    def _read(cls, head: str, lines: Sequence[str]) -> Self:
        entries: list[str] = []
        effects: list[str] = []
        inner: dict[str, list[str]] = {}
        for line in lines:
            match = _EFFECT.match(line)
            if match is not None:
                entries.append(line)
                effects.append(match[1])
                continue
            match = _INNER.match(line)
            if match is None:
                raise invalid_line(len(entries) + 2, "expected an entry or a line of an inner journal")
            call, inner_line = json.loads(match[1]), line[match.end() : -1]
            # A tool that failed was called again: its agent started a new journal.
            if inner_line.startswith(_HEAD):
                inner[call] = []
            inner.setdefault(call, []).append(inner_line)
        return cls(
            Journal.loads(f"{head}\n"),
            _StoredEntries(entries),
            effects,
            {call: cls._read(each[0], each[1:]) for call, each in inner.items()},
        )

    @cached_property
    def shown(self) -> list[int]:
        """Numbers of the entries of steps that a timeline shows: no appended messages, no compaction without effect."""
        return [at for at, effect in enumerate(self.effects) if effect != "Append" and not self._is_empty(at, effect)]

    def _is_empty(self, at: int, effect: str) -> bool:
        return effect == "Compact" and not self.entries[at].answer.messages

    @cached_property
    def unfinished(self) -> dict[str, JournalOutline]:
        """Outlines of agents that run as tools and have no result yet, by the ids of their calls."""
        # Without the other lines, an agent without a result can have a result.
        if not self.inner or not self.is_whole:
            return {}
        results = {
            self.entries[at].answer[0].call_id for at, effect in enumerate(self.effects) if effect == "CallTools"
        }
        return {call: outline for call, outline in self.inner.items() if call not in results}

    @property
    def count(self) -> int:
        """Number of steps that a timeline shows."""
        return len(self.shown) + len(self.unfinished)

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self.head.agent

    @property
    def usage(self) -> Usage:
        """Tokens and money so far. All entries are read."""
        return sum([step.usage for step in self.steps() if step.usage is not None], Usage())

    def counted(self, effect: str) -> int:
        """Return the number of entries of an effect."""
        return sum(each == effect for each in self.effects)

    def part(self, start: int, stop: int) -> list[JournalStep]:
        """Return shown steps by their numbers."""
        numbers = self.shown[start:stop]
        steps: list[JournalStep] = []
        if numbers:
            first = numbers[0]
            # From the reply with the calls of the first step.
            while first > 0 and self.effects[first] != "CallModel":
                first -= 1
            model_calls = sum(effect == "CallModel" for effect in self.effects[:first])
            part = journal_steps(self.entries, self.inner, range(first, numbers[-1] + 1), model_calls)
            steps = [step for step in part if step.number in numbers]
        if stop > len(self.shown) and self.unfinished:
            rest = journal_steps(self.entries, self.unfinished)[len(self.entries) :]
            steps += rest[max(0, start - len(self.shown)) : stop - len(self.shown)]
        return steps

    def steps(self) -> list[JournalStep]:
        """Return all steps, see `Journal.steps`. All entries are read."""
        return journal_steps(self.entries, self.inner)


class _StoredEntries(Sequence[Entry]):
    """Entries that are read from their lines when they are requested."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self._lines))[index]
        if at not in self._entries:
            try:
                self._entries[at] = read_entry(json.loads(self._lines[at]))
            except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
                raise unreadable_line(at + 2, error) from error
        return self._entries[at]
