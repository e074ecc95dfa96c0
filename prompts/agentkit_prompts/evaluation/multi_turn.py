"""`MultiTurnPromptTemplate`: dialogue of a row with several questions; each turn is one request.

See the AISBench document about multi-turn prompts. This module calls no model: `requests` yields prompts and receives
the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from copy import deepcopy
from itertools import zip_longest
from typing import Any, Literal, TypeAlias, cast, get_args

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, raise_problems
from agentkit_prompts.evaluation.problems import wrong_type
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, copies, section
from agentkit_prompts.evaluation.row_template import RowTemplate, items_of, problems_of
from agentkit_prompts.names import nearest

InferMode: TypeAlias = Literal["every", "every_with_gt", "last"]
"""Mode of the requests of a dialogue: the requested turns, and the earlier answers that a prompt shows.

`every`: each turn, with the answers of the model. `every_with_gt`: each turn, with the true answers. `last`: only the
last turn, with the true answers.
"""

REPLY = "BOT"
"""Role of the items that are answers of the model."""


def in_turns(
    chat: list[Item], infer_mode: InferMode, prompt: Callable[[list[Item]], PromptList]
) -> Generator[PromptList, str | None, list[str | None]]:
    """Yield the prompt before each item of role BOT of a dialogue, and receive its answer; see `requests`.

    Args:
        chat: The items of the dialogue; in mode `every`, received answers replace the prompts of items of role BOT.
        infer_mode: Which turns are requested.
        prompt: Function that returns the prompt for the items before an answer.
    """
    places = [place for place, item in enumerate(chat) if isinstance(item, dict) and item["role"] == REPLY]
    answers: list[str | None] = []
    if infer_mode == "last":
        places = places[-1:]
    for place in places:
        answer = yield prompt(chat[:place])
        _check_answer(len(answers), answer)
        answers.append(answer)
        # In the other modes, the prompts of later turns contain the true answers.
        if infer_mode == "every":
            if answer is None:
                break
            chat[place] = {**cast("dict[str, Any]", chat[place]), "prompt": answer}
    return answers


def _check_answer(number: int, answer: object) -> None:
    if not isinstance(answer, str | None):
        kind = type(answer).__name__
        raise InContextError(
            f"MultiTurnPromptTemplate: the answer to request {number} must be text, or None if it failed, got {kind}",
            name=f"request {number}",
            value=kind,
        )


class MultiTurnPromptTemplate(RowTemplate):
    """A dialogue whose `round` is repeated for each question of a row (see the AISBench document).

    The columns `question` and `answer` contain lists with one entry for each turn. The items of role BOT are the
    answers.

    Args:
        template: `begin`, `round` and `end`, of texts and role items.

    Raises:
        InContextError: The template has another form; the error lists all problems.
    """

    def __init__(self, template: Mapping[str, Any]) -> None:
        raise_problems(InContextError, "MultiTurnPromptTemplate", problems_of(template))
        self.template = deepcopy(dict(template))

    def item(
        self, row: Mapping[str, Any], *, ice: object = "", hide: str | None = None, instead: str = ""
    ) -> PromptList:
        """Return the dialogue of all questions that have a true answer.

        `hide` and `instead` have no effect, because `requests` selects the answers of a prompt.

        Raises:
            InContextError: The row has no questions or answers, or `ice` is not empty.
        """
        if ice:
            raise InContextError(
                "MultiTurnPromptTemplate: it has no place for worked examples; use ZeroRetriever", name="ice"
            )
        return self._prompt(row, self._chat(row, self._pairs(row)))

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> PromptList:
        return PromptList(section("ice", self._chat(row, self._pairs(row))))

    def requests(
        self, row: Mapping[str, Any], infer_mode: InferMode = "every"
    ) -> Generator[PromptList, str | None, list[str | None]]:
        """Yield the prompt of each request, and receive the answer of the model, or None if the request failed.

        In mode `every`, a failed request ends the dialogue, because the next turn needs its answer. A row without
        questions and a dialogue without items of role BOT have no requests.

        Returns:
            The received answers, in order.

        Raises:
            InContextError: The mode is unknown, the row lacks a column or a required answer, or an answer is not text.
        """
        modes = get_args(InferMode)
        if infer_mode not in modes:
            near = nearest(str(infer_mode), modes)
            raise InContextError(
                f"infer_mode: expected one of {', '.join(modes)}, got {infer_mode!r}{near}", name="infer_mode"
            )
        questions, answers = self._turns(row, infer_mode)
        chat = self._chat(row, list(zip_longest(questions, answers, fillvalue="")))
        return (yield from in_turns(chat, infer_mode, lambda items: self._prompt(row, items)))

    def _turns(self, row: Mapping[str, Any], infer_mode: InferMode) -> tuple[list[Any], list[Any]]:
        """Return the questions of a row and the true answers, which mode `every` does not need."""
        if infer_mode == "every":
            return _columns(row, ("question",))[0], []
        questions, answers = _columns(row, ("question", "answer"))
        if not len(questions) - 1 <= len(answers) <= len(questions):
            raise InContextError(
                f"MultiTurnPromptTemplate: mode {infer_mode!r} requires an answer to each question except the last; "
                f"the row has {len(questions)} questions and {len(answers)} answers",
                name="answer",
            )
        return questions, answers

    def _pairs(self, row: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Return the pairs of question and answer of a row; warn if their numbers differ."""
        questions, answers = _columns(row, ("question", "answer"))
        if len(questions) != len(answers):
            text = (
                f"MultiTurnPromptTemplate: {len(questions)} questions and {len(answers)} answers; the dialogue has the "
                f"first {min(len(questions), len(answers))} of each"
            )
            warn(InContextWarning(text, name="answer"))
        return list(zip(questions, answers, strict=False))

    def _chat(self, row: Mapping[str, Any], turns: Sequence[tuple[Any, Any]]) -> list[Item]:
        """Return the items of the round, once for each turn."""
        rows = [{**row, "question": question, "answer": answer} for question, answer in turns]
        return [item for values in rows for item in _filled(self.template["round"], values)]

    def _prompt(self, row: Mapping[str, Any], chat: Sequence[Item]) -> PromptList:
        """Return a dialogue with its `begin` and `end` sections."""
        fixed = {name: value for name, value in row.items() if name not in ("question", "answer")}
        begin, end = (self._section(name, fixed) for name in ("begin", "end"))
        return PromptList([*begin, *section("round", copies(chat)), *end])

    def _section(self, name: str, values: Mapping[str, Any]) -> list[Item]:
        if not self.template.get(name):
            return []
        return section(name, _filled(self.template[name], values))


def _columns(row: Mapping[str, Any], names: Sequence[str]) -> list[list[Any]]:
    """Return the list of entries of each column; an entry belongs to one turn.

    Raises:
        InContextError: Columns are missing or do not contain lists; the error lists all problems.
    """
    problems: Problems = []
    for name in names:
        problems += _problems_of_column(name, row)
    raise_problems(InContextError, "MultiTurnPromptTemplate", problems)
    return [list(row[name]) for name in names]


def _problems_of_column(name: str, row: Mapping[str, Any]) -> Problems:
    if name not in row:
        return [Problem(name, f"unknown column; valid columns: {', '.join(map(str, row)) or 'none'}")]
    if isinstance(row[name], str):
        text = f"column {name!r} is text, so each character is a turn; make it a list"
        warn(InContextWarning(f"MultiTurnPromptTemplate: {text}", name=name))
    return wrong_type(name, row[name], str | list | tuple, "a list with an entry for each turn")


def _filled(items: Any, values: Mapping[str, Any]) -> PromptList:
    return PromptList(items_of(items)).format(values)
