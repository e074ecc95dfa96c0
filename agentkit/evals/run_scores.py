"""Scores of runs: functions of a row and the result of its run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_jsonable_python

from agentkit.evals.conversation_result import turns_of
from agentkit.evals.eval_row import EvalRow
from agentkit.model_evaluation.scores import choice_match, exact_match, numeric_match
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.journal.code_runs import calls_with_code
from agentkit_prompts.errors import InContextError
from agentkit_prompts.names import nearest

if TYPE_CHECKING:
    from agentkit.run.engine.run_result import RunResult
    from agentkit_prompts.context.items import ToolSpec
    from agentkit_prompts.context.messages import ToolCall


@dataclass(frozen=True, slots=True)
class Score:
    """Value of a score with its reason."""

    value: float
    """From 0 to 1 for most scores; True and False are 1 and 0."""
    reason: str = ""
    usage: Usage = NO_USAGE
    """Usage of the model calls of the score itself; `Outcome.overhead` contains it."""


ScoreFunction: TypeAlias = "Callable[[EvalRow, RunResult[Any]], float | bool | Score | Awaitable[float | bool | Score]]"
"""Function of a row and the result of its run. Its name is the name of the score."""


def text_of(result: RunResult[Any]) -> str:
    """Return the answer of a run as text; a structured answer as JSON."""
    if isinstance(result.output, str):
        return result.output
    return json.dumps(json_of(result.output), ensure_ascii=False)


def json_of(output: Any) -> Any:
    """Return an answer as JSON data; values without a JSON type are converted to text."""
    return to_jsonable_python(output, fallback=str)


# Answers


def exact(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if the answer equals `expected`, or one of a list of answers, except for white space."""
    return _compared(exact_match, row, result)


def numeric(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if the last number of the answer has the value of the last number of `expected`."""
    return _compared(numeric_match, row, result)


def choice(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if the answer chooses the letter `expected`, such as `B`."""
    return _compared(choice_match, row, result)


def contains(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return the share of the texts in `expected` (a text or a list) that the answer contains, in any case."""
    texts = _expected(row)
    if not isinstance(texts, list | tuple):
        texts = [texts]
    answer = text_of(result).casefold()
    missing = [str(text) for text in texts if str(text).casefold() not in answer]
    reason = ""
    if missing:
        reason = f"missing: {', '.join(missing)}"
    return Score(1 - len(missing) / len(texts), reason)


def json_equal(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if the answer is JSON data that equals `expected`, in any order of names."""
    expected, answer = _expected(row), json_of(result.output)
    if isinstance(expected, str):
        expected = json.loads(expected)
    if isinstance(answer, str):
        try:
            answer = json.loads(answer)
        except ValueError as error:
            return Score(0, f"the answer is not JSON: {error}")
    if _same(answer, expected):
        return Score(1)
    return Score(0, f"expected {expected!r:.200}, got {answer!r:.200}")


def matches(pattern: str) -> ScoreFunction:
    """Return the score 1 if a regular expression matches a part of the answer.

    Raises:
        ValueError: The pattern is invalid.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r:.60} is no regular expression: {error}") from error
    return NamedScore(f"matches:{pattern}", lambda row, result: float(compiled.search(text_of(result)) is not None))


# Trajectory


def called(
    tool: str, *, times: int | None = None, order: int | None = None, arguments: Mapping[str, Any] | None = None
) -> ScoreFunction:
    """Return the score 1 if the run called a tool, also in code of `code_mode`.

    Args:
        tool: Name of the tool.
        times: Exact number of calls; None for at least one call.
        order: Number of the call among all calls of the run, from 1; None for any.
        arguments: Arguments that the call has, besides other arguments; None for any.
    """

    def score(row: EvalRow, result: RunResult[Any]) -> Score:
        calls = list(enumerate(_calls(result), 1))
        count = sum(_is_call(call, tool, arguments) and order in (None, at) for at, call in calls)
        if count == times or (times is None and count):
            return Score(1)
        return Score(0, f"calls: {', '.join(_shown(call) for _, call in calls) or 'none'}")

    return NamedScore(f"called:{tool}", score, tool=tool, arguments=tuple(arguments or ()))


def not_called(tool: str) -> ScoreFunction:
    """Return the score 1 if the run did not call a tool, also not in code of `code_mode`."""
    name = f"not_called:{tool}"
    return NamedScore(name, lambda row, result: all(call.name != tool for call in _calls(result)), tool=tool)


def no_tool_errors(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if no tool call failed."""
    return Score(float(not result.tool_errors), "; ".join(map(str, result.tool_errors)))


def max_steps(steps: int) -> ScoreFunction:
    """Return the score 1 if the run needed at most `steps` model calls."""
    return NamedScore(
        f"max_steps:{steps}", lambda row, result: Score(float(result.steps <= steps), f"{result.steps} steps")
    )


def max_tokens(tokens: int) -> ScoreFunction:
    """Return the score 1 if the run used at most `tokens` tokens, of prompts and replies together."""

    def score(row: EvalRow, result: RunResult[Any]) -> Score:
        used = result.usage.input_tokens + result.usage.output_tokens
        return Score(float(used <= tokens), f"{used} tokens")

    return NamedScore(f"max_tokens:{tokens}", score)


def max_money(money: float) -> ScoreFunction:
    """Return the score 1 if the run cost at most `money` US dollars; 0 if the cost is unknown."""

    def score(row: EvalRow, result: RunResult[Any]) -> Score:
        if result.cost is None:
            return Score(0, "unknown cost")
        return Score(float(result.cost <= money), f"{result.cost:.4g} US dollars")

    return NamedScore(f"max_money:{money:g}", score)


# Grounding


def cites(row: EvalRow, result: RunResult[Any]) -> Score:
    """Return 1 if the answer cites a document, and all its labels are labels of documents of the prompt."""
    if result.unknown_labels:
        return Score(0, f"unknown labels: {', '.join(result.unknown_labels)}")
    if not result.citations:
        return Score(0, "no citation")
    return Score(1)


def recalled(source: str) -> ScoreFunction:
    """Return the score 1 if the prompt contained a document of a source, such as a file."""

    def score(row: EvalRow, result: RunResult[Any]) -> Score:
        sources = [document.source for turn in turns_of(result) for document in turn.composition.context.documents]
        return Score(float(source in sources), f"documents of: {', '.join(sources) or 'none'}")

    return NamedScore(f"recalled:{source}", score, source=source)


class NamedScore:
    """A score with its name in reports.

    Args:
        name: Name of the score.
        function: The score.
        tool: Name of a tool that the score counts; empty for other scores.
        arguments: Names of arguments of the tool.
        source: Source of a document that the score expects; empty for other scores.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[EvalRow, RunResult[Any]], Any],
        *,
        tool: str = "",
        arguments: Sequence[str] = (),
        source: str = "",
    ) -> None:
        self.__name__ = name
        self._function, self._tool, self._arguments, self._source = function, tool, arguments, source

    def __call__(self, row: EvalRow, result: RunResult[Any]) -> Any:
        """Return the value of the score."""
        return self._function(row, result)

    def doubt(self, specs: Mapping[str, ToolSpec] | None, *, has_memory: bool) -> str:
        """Return the reason why the value of this score is the same for all runs; empty without a reason.

        Args:
            specs: The tools of the agent by name; None if each run creates its tools.
            has_memory: True if the agent recalls documents.
        """
        if self._source and not has_memory:
            return "the agent has no memory, so that no prompt contains a document"
        if not self._tool or specs is None:
            return ""
        spec = specs.get(self._tool)
        if spec is None:
            # `code_mode` describes the functions of its code in the schema of its tool.
            if any(self._tool in str(each.parameters) for each in specs.values()):
                return ""
            return f"the agent declares no tool {self._tool!r:.60}{nearest(self._tool, specs)}"
        properties = spec.parameters.get("properties", {})
        unknown = [name for name in self._arguments if name not in properties]
        if not unknown or spec.parameters.get("additionalProperties"):
            return ""
        return f"the tool {self._tool!r:.60} has no argument {unknown[0]!r:.60}{nearest(unknown[0], properties)}"


def _expected(row: EvalRow) -> Any:
    """Return the expected answer of a row.

    Raises:
        ValueError: The row has no expected answer, or an empty list.
    """
    if row.expected is None or row.expected in ([], ()):
        raise ValueError("the row has no `expected`: add the answer, or use a score that does not compare it")
    return row.expected


def _compared(compare: Callable[[str, Any], float], row: EvalRow, result: RunResult[Any]) -> Score:
    answer = text_of(result)
    try:
        value = compare(answer, _expected(row))
    except InContextError as error:
        raise ValueError(str(error)) from error
    if value:
        return Score(value)
    return Score(value, f"expected {row.expected!r:.200}, got {answer!r:.200}")


def _same(first: Any, second: Any) -> bool:
    """True if JSON data is equal: numbers by value, and True is no number."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-9)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    if isinstance(first, Sequence) and isinstance(second, Sequence) and not isinstance(first, str):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


def _calls(result: RunResult[Any]) -> list[ToolCall]:
    calls = [call for message in result.messages for call in message.tool_calls]
    return list(calls_with_code(calls, result.journal))


def _is_call(call: ToolCall, tool: str, arguments: Mapping[str, Any] | None) -> bool:
    if call.name != tool:
        return False
    if arguments is None:
        return True
    try:
        passed = json.loads(call.arguments)
    except ValueError:
        return False
    return isinstance(passed, dict) and all(
        name in passed and _same(passed[name], value) for name, value in arguments.items()
    )


def _shown(call: ToolCall) -> str:
    return f"{call.name}({call.arguments:.80})"
