"""The runner of conformance cases: dialogues turn by turn, and the messages of chat models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance import aisbench

ROUND = {"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]}
CASE: dict[str, Any] = {
    "id": "own",
    "op": "multiturn",
    "stage": "requests",
    "mode": "gen",
    "infer_mode": "every",
    "template": {"type": "MultiTurnPromptTemplate", "template": ROUND},
    "retriever": {"type": "ZeroRetriever"},
    "example": {"question": ["a", "b", "c"], "answer": ["1", "2", "3"]},
    "parser": "lm",
    "meta_template": None,
    "output_type": "list",
    "expect": {"output": ["a", "a\nanswer1\nb", "a\nanswer1\nb\nanswer2\nc"]},
    "required": True,
}
PARSED: dict[str, Any] = {
    "id": "own",
    "op": "parse",
    "stage": "final",
    "mode": "gen",
    "prompt": {"__promptlist__": [{"section": "round", "pos": "begin"}]},
    "parser": "api",
    "meta_template": None,
    "output_type": "list",
    "expect": {"output": []},
    "required": True,
}


def problems(case: dict[str, Any], **changes: Any) -> list[str | None]:
    return [problem for _, problem in aisbench.check({**case, **changes}, Path())]


def expecting(*output: Any) -> dict[str, Any]:
    return {"output": list(output)}


def test_the_model_of_a_case_replies_with_the_answers_of_the_case() -> None:
    assert problems(CASE) == [None]
    assert problems(CASE, model_answers=["x"], expect=expecting("a", "a\nx\nb", "a\nx\nb\nanswer2\nc")) == [None]
    assert problems(CASE, fail_turns=[2], expect=expecting("a", "a\nanswer1\nb")) == [None]
    assert problems(CASE, infer_mode="every_with_gt", fail_turns=[2], expect=expecting("a", "a\n1\nb")) == [None]
    assert problems(CASE, infer_mode="last", expect=expecting("a\n1\nb\n2\nc")) == [None]
    (wrong,) = problems(CASE, expect=expecting("a"))
    assert wrong is not None and wrong.startswith("expected ['a'], got ['a', ")
    (raised,) = problems(CASE, infer_mode="first")
    assert raised is not None and raised.startswith("InContextError: infer_mode: ")
    assert problems(CASE, required=False) == []


def test_chat_models_have_roles_if_a_case_has_no_meta_template() -> None:
    asked = {**CASE, "op": "messages", "stage": "messages", "template": {"template": ROUND}}
    row = {"question": "q", "answer": "a"}
    assert problems(asked, example=row, expect=expecting({"role": "user", "content": "q"})) == [None]


def test_empty_items_are_not_parts_of_an_api_message_and_text_stays_text() -> None:
    answers_first = {"type": "MultiTurnPromptTemplate", "template": {"round": [ROUND["round"][1]]}}
    to_an_api = {**CASE, "parser": "api", "template": answers_first, "fail_turns": [2]}
    assert problems(to_an_api, expect=expecting([], "answer1")) == [None]
    assert problems(PARSED) == [None]
    assert problems(PARSED, prompt="", output_type="str", expect={"output": ""}) == [None]
    said = {**PARSED, "op": "pipeline", "retriever": CASE["retriever"], "example": {"question": "", "answer": "a"}}
    assert problems(said, template={"template": ROUND}) == [None]
    assert problems(said, template={"template": ROUND}, stage="promptlist", output_type="PromptList") != [None]
