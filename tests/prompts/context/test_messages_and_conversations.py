"""Validation of messages; conversations as immutable views that are sent without orphans."""

from __future__ import annotations

import copy
import pickle
from threading import Thread
from time import process_time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentkit.prompts import Conversation, Image, Message, MessageError, Text, ToolCall
from agentkit.testing import strategies as some
from agentkit_prompts.context.messages import MESSAGES
from tests.prompts.laws import law

CALL = ToolCall("1", "look", "{}")


@pytest.mark.parametrize(
    ("fields", "name", "path"),
    [
        ({"role": "boss"}, "role", None),
        ({"role": ["user"]}, "role", None),
        ({"role": None}, "role", None),
        ({"role": "user", "tool_calls": (CALL,)}, "tool_calls", None),
        ({"role": "assistant", "tool_calls": ("x",)}, "tool_calls", "tool_calls[0]"),
        ({"role": "tool", "content": "x"}, "tool_call_id", None),
        ({"role": "user", "tool_call_id": "1"}, "tool_call_id", None),
        ({"role": "user", "content": 5}, "content", None),
        ({"role": "user", "content": [5]}, "content", "content[0]"),
        ({"role": "user", "content": {"a": 1}}, "content", None),
    ],
)
def test_an_invalid_message_is_refused(fields: dict[str, Any], name: str, path: str | None) -> None:
    with pytest.raises(MessageError) as caught:
        Message(**fields)
    assert (caught.value.name, caught.value.path) == (name, path)


def test_a_message_takes_text_none_and_lists_of_parts() -> None:
    class Loud(str):
        def __str__(self) -> str:
            return "LOUD"

    image = Image(b"x", name="x.png")
    assert Message("user", ["see ", image]) == Message("user", (Text("see "), image))
    assert Message("user", ["see ", image]).text == "see [image: x.png]"
    assert Message("assistant", None).content == ""  # type: ignore[arg-type]
    assert Message("user").parts == ()
    assert Message("user", "a").parts == (Text("a"),)
    assert type(Message("user", Loud("quiet")).content) is str
    assert Message("user", Loud("quiet")).content == "quiet"
    assert Message("assistant", "", [CALL]).tool_calls == (CALL,)  # type: ignore[arg-type]


def test_append_does_not_change_the_older_view() -> None:
    one = Conversation([Message("user", "a")])
    two = one.append(Message("assistant", "b"))
    other = one.append(Message("assistant", "c"))
    assert [m.text for m in one] == ["a"]
    assert [m.text for m in two] == ["a", "b"]
    assert [m.text for m in other] == ["a", "c"]
    assert two != other
    assert two == Conversation([Message("user", "a"), Message("assistant", "b")])
    assert hash(two) == hash(Conversation(list(two)))


def test_only_messages_can_be_in_a_conversation() -> None:
    with pytest.raises(MessageError) as caught:
        Conversation([Message("user"), "x"])  # type: ignore[list-item]
    assert caught.value.path == "conversation[1]"
    with pytest.raises(MessageError) as caught:
        Conversation([Message("user")]).append({})  # type: ignore[arg-type]
    assert caught.value.path == "conversation[1]"


@law
@given(
    st.lists(some.messages(), max_size=12),
    st.integers(-15, 15) | st.none(),
    st.integers(-15, 15) | st.none(),
    st.integers(-3, 3).filter(bool) | st.none(),
)
def test_a_conversation_slices_like_a_tuple(
    messages: list[Message], start: int | None, stop: int | None, step: int | None
) -> None:
    whole = Conversation(messages)
    part = whole[start:stop:step]
    assert tuple(part) == tuple(messages)[start:stop:step]
    for index in range(-len(part), len(part)):
        assert part[index] == tuple(part)[index]
    for index in (len(part), -len(part) - 1):
        with pytest.raises(IndexError):
            part[index]


@law
@given(st.lists(some.messages(), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_derived_values_match_the_messages_of_the_view(messages: list[Message], start: int, stop: int) -> None:
    counted: list[Message] = []

    def size(message: Message) -> int:
        counted.append(message)
        return len(message.text)

    view = Conversation(messages)[start:stop]
    expected = [len(message.text) for message in messages[start : max(start, stop)]]
    assert view.derive(size) == expected
    assert view.total(size) == sum(expected)
    before = len(counted)
    longer = view.append(Message("user", "more"))
    assert longer.derive(size) == [*expected, 4]
    assert view.derive(size) == expected
    assert len(counted) - before <= len(messages) + 1


@law
@given(some.conversations(orphans=True))
def test_complete_removes_only_orphans(conversation: Conversation) -> None:
    complete = conversation.complete()
    waiting: set[str] = set()
    for message in complete:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.discard(message.tool_call_id)
        else:
            assert not waiting
            waiting = {call.id for call in message.tool_calls}
    assert not waiting
    texts = [m.content for m in complete if m.role in ("user", "system")]
    assert texts == [m.content for m in conversation if m.role in ("user", "system")]
    assert [m.content for m in complete if m.role == "assistant" and m.content] == [
        m.content for m in conversation if m.role == "assistant" and m.content
    ]
    assert list(complete.complete()) == list(complete)


def test_a_complete_conversation_is_returned_unchanged() -> None:
    whole = Conversation(
        [Message("user", "q"), Message("assistant", "", (CALL,)), Message("tool", "r", tool_call_id="1")]
    )
    assert whole.complete() is whole
    for cut in range(1, 3):
        assert all(message.role != "tool" for message in whole[cut:3].complete()) or cut == 1
    assert [m.role for m in whole[0:2].complete()] == ["user"]
    assert [m.role for m in whole[2:3].complete()] == []


def test_the_check_of_many_results_takes_linear_time() -> None:
    calls = [ToolCall(str(number), "f") for number in range(20_000)]
    results = [Message("tool", "r", tool_call_id=call.id) for call in calls]
    conversation = Conversation([Message("assistant", "", calls), *results])
    start = process_time()
    assert conversation.complete() is conversation
    assert process_time() - start < 0.5


def test_folds_by_two_functions_are_separate() -> None:
    conversation = Conversation([Message("user", text) for text in "abc"])

    def text_of(message: Message) -> str:
        return message.text

    def count(number: int | None, texts: list[str]) -> int:
        return (number or 0) + len(texts)

    def last(earlier: str | None, texts: list[str]) -> str:
        return texts[-1]

    for _ in range(2):
        assert conversation.join(text_of, ",") == "a,b,c"
        assert conversation.fold(text_of, count) == 3
        assert conversation.fold(text_of, last) == "c"


SHORT = {"u": Message("user", "x"), "s": Message("system", "s"), "t": Message("assistant", "text")}
SHORT |= {letter: Message("assistant", "", (ToolCall(letter, "f"),)) for letter in "AB"}
SHORT |= {letter.lower(): Message("tool", "r", tool_call_id=letter) for letter in "AB"}
SHORT["D"] = Message("assistant", "", (ToolCall("A", "f"), ToolCall("B", "f")))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("uAaau", "uAau"),
        ("uAua", "uAau"),
        ("uAuaut", "uAauut"),
        ("uAsuat", "uAasut"),
        ("uAta", "uAat"),
        ("uDaub", "uDabu"),
        ("uDbua", "uDbau"),
        ("uDua", "uu"),
        ("uABab", "uAaBb"),
        ("uAuBba", "uAauBb"),
        ("uAuAa", "uuAa"),
        ("uAauAua", "uAauAau"),
        ("uaAu", "uu"),
        ("uAu", "uu"),
    ],
)
def test_a_result_follows_its_call_and_no_other_message_is_lost(given_: str, expected: str) -> None:
    complete = Conversation([SHORT[letter] for letter in given_]).complete()
    assert list(complete) == [SHORT[letter] for letter in expected]


def test_the_move_of_many_late_results_takes_linear_time() -> None:
    calls = [Message("assistant", "", (ToolCall(str(number), "f"),)) for number in range(5_000)]
    results = [Message("tool", "r", tool_call_id=str(number)) for number in range(0, 5_000, 2)]
    start = process_time()
    assert len(Conversation([*calls, *results]).complete()) == 5_000
    assert process_time() - start < 1


def test_a_conversation_survives_pickle_and_copy() -> None:
    conversation = Conversation([Message("user", ["a", Image(b"x")]), Message("assistant", "b")])[0:2]
    assert pickle.loads(pickle.dumps(conversation)) == conversation
    assert copy.deepcopy(conversation) == conversation
    assert copy.copy(conversation) == conversation


def test_threads_that_append_to_one_view_do_not_see_each_other() -> None:
    base = Conversation([Message("user", "start")])
    made: dict[int, Conversation] = {}

    def grow(number: int) -> None:
        view = base
        for step in range(200):
            view = view.append(Message("user", f"{number}-{step}"))
            view.derive(text_of)
        made[number] = view

    threads = [Thread(target=grow, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, view in made.items():
        expected = ["start", *(f"{number}-{step}" for step in range(200))]
        assert [message.text for message in view] == expected
        assert view.derive(text_of) == expected


def text_of(message: Message) -> str:
    return message.text


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("c", "f", [1]), "arguments"),
        (("c", "f", {"q": {1}}), "arguments"),
        (("c", "f", {"q": [float("nan")]}), "arguments"),
        (("c", "f", {1: 2, "1": 3}), "arguments"),
        (("c", 3, "{}"), "name"),
        ((None, "f", "{}"), "id"),
    ],
)
def test_the_fields_of_a_tool_call_are_texts(fields: tuple[Any, ...], name: str) -> None:
    with pytest.raises(MessageError) as caught:
        ToolCall(*fields)
    assert caught.value.name == name


def test_the_arguments_of_a_tool_call_can_be_a_mapping() -> None:
    assert ToolCall("c", "f", {"q": "ü"}) == ToolCall("c", "f", '{"q": "ü"}')
    inner = MappingProxyType({"a": (1, None)})
    assert ToolCall("c", "f", MappingProxyType({"q": inner})).arguments == '{"q": {"a": [1, null]}}'


def test_a_conversation_is_extended_with_plus() -> None:
    first, second = Message("user", "a"), Message("assistant", "b")
    conversation = Conversation([first])
    conversation += [second]
    assert conversation == Conversation([first, second])


def test_the_error_of_a_message_without_a_role_names_the_field() -> None:
    with pytest.raises(MessageError, match=r"Message\('user', 'hi'\)"):
        Message("hi")  # type: ignore[arg-type]


def test_calls_without_ids_are_equal_in_each_process_and_unique_in_a_reply() -> None:
    call = ToolCall(name="look", arguments={"city": "Bern"})
    assert call.id == "39ef7d599" and call == ToolCall(name="look", arguments='{"city": "Bern"}')
    others = [ToolCall(name="look"), ToolCall(name="seek", arguments={"city": "Bern"}), ToolCall("c1", "look")]
    message = Message("assistant", tool_calls=[call, call, *others, call])
    ids = [each.id for each in message.tool_calls]
    assert len({*ids}) == 6 and ids[0] == call.id and ids[4] == "c1"
    assert all(len(each) == 9 and each.isalnum() for each in ids if each != "c1")
    assert Message("assistant", tool_calls=[call, call, *others, call]) == message
    assert MESSAGES.validate_json(MESSAGES.dump_json(message)) == message
    # An id of the model is not replaced.
    given = Message("assistant", tool_calls=[ToolCall("c1", "look"), ToolCall("c1", "look")])
    assert [each.id for each in given.tool_calls] == ["c1", "c1"]
    with pytest.raises(ValidationError):
        MESSAGES.validate_python({"role": "assistant", "tool_calls": [{"name": "look"}]})


def test_a_call_needs_a_name() -> None:
    wrong: list[Any] = [{}, {"id": "look"}, {"id": "look", "name": {"city": "Bern"}}, {"arguments": {}}, {"name": None}]
    for fields in wrong:
        with pytest.raises(MessageError) as caught:
            ToolCall(**fields)
        assert caught.value.name == "name"
