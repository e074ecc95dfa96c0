"""Inner runs that are code of a model: their tool calls count in the outer run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit.run.journal.journal import Journal
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult

CODE_TAG = "code"
"""Tag of the run of code."""


def code_calls(journal: Journal) -> int:
    """Return the number of tool calls that code of a run made so far."""
    entries = [entry for code in _code_of(journal) for entry in code.entries if entry.effect == "CallModel"]
    return sum([len(entry.answer.message.tool_calls) for entry in entries])


def calls_with_code(calls: Iterable[ToolCall], journal: Journal) -> Iterator[ToolCall]:
    """Yield tool calls of a run, each with the calls that its code made after it."""
    for call in calls:
        yield call
        code = journal.inner.get(call.id)
        if code is not None and CODE_TAG in code.tags:
            entries = [entry for entry in code.entries if entry.effect == "CallModel"]
            yield from calls_with_code([each for entry in entries for each in entry.answer.message.tool_calls], code)


def counted_results(journal: Journal) -> list[ToolResult]:
    """Return the results of the tool calls of a run so far, including the calls of its code."""
    results = journal.tool_results
    for code in _code_of(journal):
        results += code.tool_results
    return results


def _code_of(journal: Journal) -> list[Journal]:
    return [inner for inner in journal.inner.values() if CODE_TAG in inner.tags]
