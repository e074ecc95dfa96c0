"Dialogues of several turns: the content of each request, and the requests after a reply of the model."

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    InContext,
    InContextWarning,
    MetaTemplate,
    MultiTurnPromptTemplate,
    PromptList,
)
from tests.prompts.evaluation.refusals import places, refused, warned

TEMPLATE: dict[str, Any] = {"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]}
SUMS: dict[str, Any] = {"question": ["1+1=?", "2+2=?", "3+3=?"], "answer": ["2", "4", "6"]}


def dialogue(*said: str) -> list[dict[str, str]]:
    return [{"role": "BOT" if place % 2 else "HUMAN", "prompt": text} for place, text in enumerate(said)]


def without_markers(prompt: PromptList) -> list[Any]:
    return [item for item in prompt if not (isinstance(item, dict) and "section" in item)]


def ask(
    template: dict[str, Any],
    row: dict[str, Any],
    infer_mode: Any = "every",
    reply: Callable[[int], str | None] = lambda turn: f"answer{turn}",
) -> tuple[list[PromptList], list[str | None]]:
    """Play the model: answer each request, and return the requests and the return value of the generator."""
    sent: list[PromptList] = []
    requests = MultiTurnPromptTemplate(template).requests(row, infer_mode)
    try:
        sent.append(next(requests))
        while True:
            sent.append(requests.send(reply(len(sent))))
    except StopIteration as stop:
        return sent, stop.value


def configured(infer_mode: str | None) -> InContext:
    inferencer = {"type": "MultiTurnGenInferencer"} | ({"infer_mode": infer_mode} if infer_mode else {})
    infer_cfg = {
        "prompt_template": {"type": "MultiTurnPromptTemplate", "template": TEMPLATE},
        "retriever": {"type": "ZeroRetriever"},
        "inferencer": inferencer,
    }
    return InContext.from_cfg(infer_cfg, {"input_columns": ["question"], "output_column": "answer"})


class TestTheDocument:
    def test_mode_every_inserts_the_answers_of_the_model(self) -> None:
        sent, given = ask(TEMPLATE, SUMS, "every")
        assert [without_markers(prompt) for prompt in sent] == [
            dialogue("1+1=?"),
            dialogue("1+1=?", "answer1", "2+2=?"),
            dialogue("1+1=?", "answer1", "2+2=?", "answer2", "3+3=?"),
        ]
        assert given == ["answer1", "answer2", "answer3"]

    def test_mode_every_with_gt_inserts_the_true_answers(self) -> None:
        sent, given = ask(TEMPLATE, SUMS, "every_with_gt")
        assert [without_markers(prompt) for prompt in sent] == [
            dialogue("1+1=?"),
            dialogue("1+1=?", "2", "2+2=?"),
            dialogue("1+1=?", "2", "2+2=?", "4", "3+3=?"),
        ]
        assert given == ["answer1", "answer2", "answer3"]

    def test_mode_last_sends_one_request_after_the_true_answers(self) -> None:
        sent, given = ask(TEMPLATE, SUMS, "last")
        assert [without_markers(prompt) for prompt in sent] == [dialogue("1+1=?", "2", "2+2=?", "4", "3+3=?")]
        assert given == ["answer1"]

    def test_a_meta_template_parses_the_requests(self) -> None:
        meta = {
            "round": [{"role": "HUMAN", "begin": "H:", "end": "\n"}, {"role": "BOT", "begin": "B:", "generate": True}]
        }
        (request,), _ = ask(TEMPLATE, SUMS, "last")
        assert MetaTemplate(meta).parse(request) == "H:1+1=?\nB:2H:2+2=?\nB:4H:3+3=?\nB:"
        assert ApiMetaTemplate(meta).parse(request)[-1] == {"role": "HUMAN", "prompt": "H:3+3=?\n"}

    def test_the_complete_dialogue_has_the_true_answers(self) -> None:
        template = MultiTurnPromptTemplate(TEMPLATE)
        assert without_markers(template.item(SUMS)) == dialogue("1+1=?", "2", "2+2=?", "4", "3+3=?", "6")
        assert template.label_item(SUMS) == template.item(SUMS)
        example = template.ice_item(SUMS)
        assert example[0] == {"section": "ice", "pos": "begin"}
        assert without_markers(example) == without_markers(template.item(SUMS))

    def test_the_mode_of_a_configuration_chooses_the_requests(self) -> None:
        icl = configured("last")
        assert isinstance(icl.prompt_template, MultiTurnPromptTemplate)
        (row,) = icl.prompts([SUMS])
        assert without_markers(row.prompt) == dialogue("1+1=?", "2", "2+2=?", "4", "3+3=?")
        turns = list(configured("every_with_gt").prompts([SUMS]))
        assert [(one.row, one.turn, without_markers(one.prompt)) for one in turns] == [
            (0, 0, dialogue("1+1=?")),
            (0, 1, dialogue("1+1=?", "2", "2+2=?")),
            (0, 2, dialogue("1+1=?", "2", "2+2=?", "4", "3+3=?")),
        ]

    def test_mode_every_of_a_configuration_has_no_list_of_prompts(self) -> None:
        icl = configured("every")
        error = refused(lambda: list(icl.prompts([SUMS])))
        assert (error.name, error.value) == ("infer_mode", "every")
        asked = icl.requests(SUMS)
        assert without_markers(next(asked)) == dialogue("1+1=?")
        assert without_markers(asked.send("two")) == dialogue("1+1=?", "two", "2+2=?")
        assert without_markers(configured(None).requests(SUMS).send(None)) == dialogue("1+1=?")


class TestTurns:
    def test_each_request_has_the_begin_and_the_end_with_the_columns_of_the_row(self) -> None:
        template = {**TEMPLATE, "begin": "About {topic}.", "end": [{"role": "SYSTEM", "prompt": "{question}"}]}
        sent, _ = ask(template, {**SUMS, "topic": "sums"})
        for prompt in sent:
            said = without_markers(prompt)
            assert (said[0], said[-1]) == ("About sums.", {"role": "SYSTEM", "prompt": "{question}"})

    def test_the_text_around_an_answer_is_kept_only_for_true_answers(self) -> None:
        template = {
            "round": ["Turn. ", {"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "It is {answer}"}]
        }
        row = {"question": ["a", "b"], "answer": ["1", "2"]}
        assert without_markers(ask(template, row, "every")[0][1])[2] == {"role": "BOT", "prompt": "answer1"}
        assert without_markers(ask(template, row, "every_with_gt")[0][1])[2] == {"role": "BOT", "prompt": "It is 1"}

    def test_a_failed_request_ends_the_dialogue_that_needs_its_answer(self) -> None:
        fails = {2}
        sent, given = ask(TEMPLATE, SUMS, "every", lambda turn: None if turn in fails else "x")
        assert (len(sent), given) == (2, ["x", None])
        sent, given = ask(TEMPLATE, SUMS, "every_with_gt", lambda turn: None if turn in fails else "x")
        assert (len(sent), given) == (3, ["x", None, "x"])

    def test_values_and_answers_are_not_expanded(self) -> None:
        row = {"question": ["{answer}?", "x"], "answer": ["{question}", "y"]}
        sent, _ = ask(TEMPLATE, row, "every", lambda turn: "{question} and {answer}")
        assert without_markers(sent[1]) == dialogue("{answer}?", "{question} and {answer}", "x")

    def test_questions_without_answers_are_sent(self) -> None:
        assert len(ask(TEMPLATE, {"question": ["a", "b"]}, "every")[0]) == 2
        sent, _ = ask(TEMPLATE, {"question": ["a", "b", "c"], "answer": ["1", "2"]}, "every_with_gt")
        assert without_markers(sent[2]) == dialogue("a", "1", "b", "2", "c")

    def test_the_complete_dialogue_warns_about_turns_that_it_omits(self) -> None:
        template = MultiTurnPromptTemplate(TEMPLATE)
        for question, name in ((["a", "b", "c"], "answer"), ("ab", "question")):
            row = {"question": question, "answer": ["1", "2"]}
            assert warned(lambda row=row: template.item(row)) == [name]  # type: ignore[misc]
            with pytest.warns(InContextWarning):
                assert without_markers(template.item(row)) == dialogue("a", "1", "b", "2")

    @pytest.mark.parametrize("infer_mode", ["every", "every_with_gt", "last"])
    def test_a_row_without_questions_or_a_template_without_a_model_makes_no_request(self, infer_mode: str) -> None:
        assert ask(TEMPLATE, {"question": [], "answer": []}, infer_mode) == ([], [])
        assert ask({"round": [{"role": "HUMAN", "prompt": "{question}"}]}, SUMS, infer_mode) == ([], [])

    def test_an_item_without_a_prompt_is_kept(self) -> None:
        sent, _ = ask({"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT"}]}, SUMS)
        assert without_markers(sent[1]) == dialogue("1+1=?", "answer1", "2+2=?")

    def test_requests_change_neither_the_arguments_nor_other_requests(self) -> None:
        template, row = deepcopy(TEMPLATE), deepcopy(SUMS)
        sent, _ = ask(template, row)
        sent[0][1]["prompt"] = "changed"  # type: ignore[index, call-overload]
        assert (template, row) == (TEMPLATE, SUMS)
        assert without_markers(sent[1])[0] == {"role": "HUMAN", "prompt": "1+1=?"}


class TestBadInput:
    def test_an_unknown_mode_is_refused(self) -> None:
        assert refused(lambda: ask(TEMPLATE, SUMS, "lasst")).name == "infer_mode"

    def test_the_error_names_all_missing_columns(self) -> None:
        assert places(lambda: MultiTurnPromptTemplate(TEMPLATE).item({})) == ("question", "answer")
        assert places(lambda: ask(TEMPLATE, {"question": 5})) == ("question",)

    @pytest.mark.parametrize("answers", [["1"], ["1", "2", "3", "4"]])
    def test_a_number_of_answers_that_differs_from_the_questions_is_refused(self, answers: list[str]) -> None:
        row = {"question": ["a", "b", "c"], "answer": answers}
        assert refused(lambda: ask(TEMPLATE, row, "last")).name == "answer"

    def test_a_reply_that_is_not_text_is_refused(self) -> None:
        error = refused(lambda: ask(TEMPLATE, SUMS, reply=lambda turn: 5))  # type: ignore[arg-type, return-value]
        assert (error.name, error.value) == ("request 0", "int")

    def test_worked_examples_are_refused(self) -> None:
        template = MultiTurnPromptTemplate(TEMPLATE)
        assert template.places() == ""
        assert refused(lambda: template.item(SUMS, ice="x")).name == "ice"

    def test_the_error_names_each_problem_of_a_template(self) -> None:
        assert places(lambda: MultiTurnPromptTemplate("{question}")) == ("template",)  # type: ignore[arg-type]
        found = places(lambda: MultiTurnPromptTemplate({"rounds": [], "begin": [5, {"prompt": 7}]}))
        assert found == ("rounds", "round", "begin[0]", "begin[1].role", "begin[1].prompt")
