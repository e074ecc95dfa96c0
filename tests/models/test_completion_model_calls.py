"""Tool calls in the text of a model: the recognised forms, in any pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.formats import forms_of
from tests.cases import collected

ADD = {"name": "add", "arguments": {"a": 2, "b": "{}</tool_call>"}}
ARGUMENTS = json.dumps(ADD["arguments"])
CALL = json.dumps(ADD)
LLAMA = CALL.replace("arguments", "parameters")


def read_reply(text: str, size: int = 1000) -> tuple[str, list[tuple[str, str]]]:
    """Return the shown text, and the calls."""
    spoken = TextToolCalls({"add": {}, "sub": {}})
    shown = "".join(spoken.add(text[at : at + size]) for at in range(0, len(text), size)) + spoken.end()
    return shown, [(call.name, call.arguments) for call in spoken.calls]


ONE = [("add", ARGUMENTS)]


KNOWN_FORMS: list[Any] = [
    (f"<tool_call>\n{CALL}\n</tool_call>", "", ONE),
    (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>\n", "", ONE * 2),
    (f"<tool_call>{CALL}", "", ONE),  # the closing tag was a stop word
    (f"Well. <tool_call>{CALL}</tool_call> Done.", "Well.  Done.", ONE),
    (f"<|tool_call|>[{CALL}, {CALL}]<|/tool_call|>", "", ONE * 2),
    (f"<|tool_call|>[{CALL}]", "", ONE),
    (f"<|python_tag|>{LLAMA}; {LLAMA}<|eom_id|>", "", ONE * 2),
    (f"I see.<function=add>{ARGUMENTS}</function>", "I see.", ONE),
    (f"<|action_start|><|plugin|>\n{LLAMA}<|action_end|>\n", "", ONE),
    (f"[TOOL_CALLS] [{CALL}]", "", ONE),
    (f"[TOOL_CALLS]add[ARGS]{ARGUMENTS}[TOOL_CALLS]sub[ARGS]{{}}", "", [*ONE, ("sub", "{}")]),
    (f" {LLAMA}\n", "", ONE),
    (f"[{CALL}]", "", ONE),
    ('{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}', "", [("add", '{"a": 1}')]),
    ('{"name": "add"}', "", [("add", "{}")]),
]


def test_a_call_in_a_known_form_is_removed_from_the_text() -> None:
    failures: list[str] = []
    for said, shown, calls in KNOWN_FORMS:
        for size in [1, 2, 5, 1000]:
            with collected(failures, said, shown, calls, size):
                assert read_reply(said, size) == (shown, calls)
    assert failures == []


NO_CALLS: list[Any] = [
    "Just text.",
    "",
    '{"answer": 5}',
    "{broken",
    '{"name": "unknown", "arguments": {}}',  # JSON alone is a call if a tool has its name
    f"{CALL} and more",
    f"Here: {CALL}",
    "<tool_call>",
    "<tool_call>add(2, 3)</tool_call>",
    '<tool_call>{"name": "add", "arguments": 5}</tool_call>',
    '<tool_call>{"name": "add", "arguments": "five"}</tool_call>',
    '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
    f"<tool_call>{CALL} is how it is written",
    f'<|tool_call|>[{CALL}, "x"]<|/tool_call|>',
    "<|python_tag|>print(1)",
    "<function=add",
    "<function=add>nothing</function>",
    "<function=add>[1]</function>",
    "a < b [TOOL",
    "<tool_call>" * 3,
    "[" * 2000,
]


def test_text_that_is_not_a_call_stays_text() -> None:
    failures: list[str] = []
    for said in NO_CALLS:
        for size in [1, 1000]:
            with collected(failures, said, size):
                assert read_reply(said, size) == (said, [])
    assert failures == []


@pytest.mark.parametrize(
    ("format", "begin", "end"),
    [
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>",
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("mistral", "[TOOL_CALLS]add[ARGS]", ""),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>", ""),
    ],
)
def test_arguments_that_are_json_stay_as_the_model_wrote_them(format: str, begin: str, end: str) -> None:
    written = '{"a":2,\n "b": "\\u00e9"}'
    calls = TextToolCalls({}, format)
    assert calls.add(f"{begin}{written}{end}") + calls.end() == ""
    assert [call.arguments for call in calls.calls] == [written]


def test_every_call_has_a_separate_id_of_nine_letters_and_digits() -> None:
    spoken = TextToolCalls({"add": {}})
    spoken.add(f"<tool_call>{CALL}</tool_call>" * 2)
    spoken.end()
    ids = {call.id for call in spoken.calls}
    assert len(ids) == 2
    assert all(len(id_) == 9 and id_.isalnum() for id_ in ids)


def test_a_long_reply_that_may_be_a_call_is_joined_once() -> None:
    said = "<tool_call>{" + "x" * 300_000
    assert read_reply(said, 3) == (said, [])


PIECES = st.sampled_from(
    [form.opening for form in forms_of(None)]
    + [form.closing for form in forms_of(None)]
    + [tag for tags in REASONING_TAGS for tag in tags]
    + [CALL, ARGUMENTS, "add", ">", "[ARGS]", " ", "x", "<", "{"]
)


@given(st.lists(PIECES, max_size=8).map("".join), st.integers(1, 20))
def test_the_pieces_of_a_reply_make_no_difference(said: str, size: int) -> None:
    assert read_reply(said, size) == read_reply(said)
