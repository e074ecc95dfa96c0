"""A person approves the arguments that the tool receives: approvals show validated arguments, one per line."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from agentkit import Agent, Message, Paused, ScriptedModel, ToolCall, tool
from agentkit.tools import Tool, ToolArgumentError
from agentkit_tools.calling.shown_arguments import argument_lines

RECEIVED: list[dict[str, Any]] = []


class Person(BaseModel):
    name: str
    currency: str = "USD"


@tool(approval="always", repair=True)
def pay(
    amount: float,
    to: Person | str = "the shop",
    when: datetime | None = None,
    more: Any = None,
    is_urgent: bool = False,
    pin: SecretStr | None = None,
) -> str:
    RECEIVED.append(
        {
            "amount": amount,
            "to": to,
            "when": when,
            "more": more,
            "is_urgent": is_urgent,
            "pin": pin and pin.get_secret_value(),
        }
    )
    return "paid"


DEEP = "[" * 90 + "]" * 90
PLAIN = {"to": "the shop", "when": None, "more": None, "is_urgent": False, "pin": None}
SHOWN: dict[str, dict[str, Any]] = {
    # defaults
    '{"amount": 30}': {"amount": 30.0, **PLAIN},
    '{"amount": 30, "to": {"name": "Ada"}}': {**PLAIN, "amount": 30.0, "to": {"name": "Ada", "currency": "USD"}},
    # conversions
    '{"amount": "9e5", "is_urgent": "yes"}': {**PLAIN, "amount": 900_000.0, "is_urgent": True},
    '{"amount": 1, "when": 1700000000}': {**PLAIN, "amount": 1.0, "when": "2023-11-14T22:13:20Z"},
    '{"amount": 12345678901234567890123}': {**PLAIN, "amount": 12345678901234567890123.0},
    # values whose JSON form is another value
    '{"amount": 1, "pin": "1234"}': {**PLAIN, "amount": 1.0, "pin": "1234"},
    # repairs
    "{'amount': 1, 'is_urgent': True,}": {**PLAIN, "amount": 1.0, "is_urgent": True},
    '"{\\"amount\\": 7}"': {**PLAIN, "amount": 7.0},
    # spellings
    '{"am\\u006funt": 2, "more": "\u202e\\u200b\\u001b[2J\\nto: me"}': {
        **PLAIN,
        "amount": 2.0,
        "more": "\u202e\u200b\x1b[2J\nto: me",
    },
    f'{{"amount": 3, "more": {DEEP}}}': {**PLAIN, "amount": 3.0, "more": json.loads(DEEP)},
}
REFUSED = (
    '{"amount": 1, "amount": 2}',
    '{"amount": 1, "\\u0061mount": 2}',
    '{"amount": 1, "to": {"name": "Ada", "name": "Eve"}}',
    '{"amount": 1e400}',
    '{"amount": 1, "x": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "{'amount': 1, 'amount': 2}",
)


def pays(arguments: str) -> Agent[Any, Any]:
    call = Message("assistant", tool_calls=(ToolCall("c1", "pay", arguments),))
    return Agent(ScriptedModel([call, "Done."]), tools=[pay], name="bank")


@pytest.mark.parametrize("pauses", [True, False])
def test_the_shown_arguments_are_the_received_arguments(pauses: bool) -> None:
    failures: list[str] = []
    for arguments, expected in SHOWN.items():
        RECEIVED.clear()
        asked: list[ToolCall] = []
        agent = pays(arguments)
        if pauses:
            with pytest.raises(Paused) as error:
                agent.run_sync("Pay.")
            asked += error.value.calls
            agent.resume_sync(error.value.journal, approve={"c1": True})
        else:
            agent.run_sync("Pay.", approve=lambda call: asked.append(call) is None)  # noqa: B023 - called before the next loop
        shown = json.loads(asked[0].arguments)
        received = to_jsonable_python(RECEIVED)
        if shown != expected or received != [expected] or not asked[0].arguments.isprintable():
            failures.append(f"{arguments[:60]}: shown {shown}, received {received}")
    assert failures == []


def test_no_approval_is_requested_for_arguments_that_are_refused() -> None:
    for arguments in REFUSED:
        RECEIVED.clear()
        result = pays(arguments).run_sync("Pay.", approve=lambda call: pytest.fail(f"asked about {call}"))
        assert "problem with the arguments" in result.messages[2].text and RECEIVED == [], arguments


def test_two_names_of_the_same_property_are_refused() -> None:
    schema = {"type": "object", "properties": {"filter[id]": {"type": "integer"}}}
    find = Tool.from_json_schema("find", "Find.", schema, lambda **values: values, approval="always")
    (wire,) = find.to_anthropic()["input_schema"]["properties"]
    assert json.loads(find.as_received(ToolCall("c", "find", f'{{"{wire}": 1}}')).arguments) == {"filter[id]": 1}
    with pytest.raises(ToolArgumentError):
        find.validate(f'{{"{wire}": 1, "filter[id]": 2}}')


LINES: dict[str, list[str]] = {
    "{}": [],
    '{"a": 30, "b": "x", "c": [1, 2], "d": {"e": null}}': ["a: 30", 'b: "x"', "c: [1, 2]", 'd: {"e": null}'],
    '{"a": 1, "a": {"b": 1, "b": 2}}': ["a: 1", 'a: {"b": 1, "b": 2}'],
    '{"a": 9007199254740993, "b": 1e400, "c": 0.10}': ["a: 9007199254740993", "b: 1e400", "c: 0.10"],
    '{"a\\nb: 1": 1, "a.b": 2, "": 3, "\\u202e": 4}': ['"a\\nb: 1": 1', '"a.b": 2', '"": 3', '"\\u202e": 4'],
    '{"a": "\\u001b[2J\u202e\u200b\u2028\xa0\U000e0041\u3164e\u0301 \ue000\\nb: 2"}': [
        'a: "\\u001b[2J\\u202e\\u200b\\u2028\\u00a0\\udb40\\udc41\\u3164e\\u0301 \\ue000\\nb: 2"'
    ],
    '{"a": "\u2065\ufff0\uffff\U000e0080", "\u2065": 1}': [
        'a: "\\u2065\\ufff0\\uffff\\udb40\\udc80"',
        '"\\u2065": 1',
    ],
    json.dumps({"a": {"to": "x" * 1_000, "b": [1, {"c": 2}]}}): [
        f'a.to: "{"x" * 99} ... {"x" * 99}" (cut: 1,002 characters)',
        'a.b: [1, {"c": 2}]',
    ],
    json.dumps({"a": [1234567890] * 30}): [f"a[{index}]: 1234567890" for index in range(30)],
    "[1]": ["not an object: [1]"],
    "oops\n": ['not JSON: "oops\\n"'],
}


def test_each_argument_has_a_line_and_only_long_values_are_cut() -> None:
    assert {text: argument_lines(text) for text in LINES} == LINES
    long = json.dumps({"a": {"to": "x" * 1_000}})
    assert argument_lines(long, is_whole=True) == [f'a.to: "{"x" * 1_000}"']
    name = "n" * 10_000
    assert argument_lines(json.dumps({name: [1] * 200})) == [f"{name}: [{', '.join(['1'] * 200)}]"]
    many = json.dumps({f"k{index}": index for index in range(20_000)})
    assert argument_lines(many)[-1] == "k19999: 19999" and len(argument_lines(many)) == 20_000
