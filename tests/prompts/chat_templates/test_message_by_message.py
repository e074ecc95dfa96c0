"""Compositions written message by message: the text is equal to a complete rendering."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.prompts import (
    Composition,
    Conversation,
    Document,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    TextPrompt,
    Thinking,
    ToolCall,
    ToolSpec,
    compose,
)
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError, ControlTokenError, RoleMarkerTemplate
from agentkit_prompts.chat_templates.chat_turns import Turn
from agentkit_prompts.chat_templates.role_markers import Task
from agentkit_prompts.composition.targets.by_message import text_by_message
from agentkit_prompts.composition.targets.chat_text import whole_text
from tests.cases import for_cases
from tests.effort import spread
from tests.prompts.laws import law

pytestmark = [
    pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning"),
    pytest.mark.untraced,  # see conftest.py
]


class Quoting(RoleMarkerTemplate):
    """Custom template that changes the text of each message."""

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        opening, text, ending = super().piece(turn, task, recent)
        return opening, f"<{text}>", ending


class Titled(RoleMarkerTemplate):
    """Custom template that writes the role before each message."""

    rewrites_text = False

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        opening, text, ending = super().piece(turn, task, recent)
        return f"{opening}{turn['role']}: ", text, ending


TOOLS = [
    ToolSpec("look", "Looks.", {"type": "object", "properties": {"key": {"type": "string", "default": "\u00e9"}}}),
    ToolSpec("strict", "", {"type": "object", "properties": {}}, strict=True),
]
OWN = {
    "nothing around": RoleMarkerTemplate(special_tokens=["<s>"]),
    "open ends": RoleMarkerTemplate(user="<U>", assistant="<A>", special_tokens=["<|x|>", "</U>"], stop_words=("<e>",)),
    "words": RoleMarkerTemplate(user="User:", eoh="\n", assistant="Bot:", eoa="\n", tool="Tool: ", eotool="\n"),
    "indented": RoleMarkerTemplate(system=" ", eosys="\n\n", user="  ", eoh="\n", assistant="USER: ", eoa=" "),
    "quotes": Quoting(user="<U>", eoh="</U>", assistant="<A>", eoa="</A>", special_tokens=["<<x>>"]),
    "titles": Titled(user="<U>", eoh="</U>", assistant="<A>", eoa="</A>"),
    "blank lines": RoleMarkerTemplate(user="<U>", eoh="</U>", assistant="<A>", eoa="</A>", special_tokens=["<\n\n>"]),
}
TEMPLATES = {**{name: CHAT_TEMPLATES.get(name)() for name in CHAT_TEMPLATES}, **OWN}
_WHOLE = {
    *("base", "llama", "internlm-7b", "internlm-20b", "puyu", "chatglm", "yi-vl"),
    *("nothing around", "open ends", "indented", "blank lines", "quotes"),
}
"""Templates without markers, with a token that can span messages, with numbers of messages, or with changed texts."""
BY_MESSAGE = sorted(set(TEMPLATES) - _WHOLE)


def texts(template: Any) -> st.SearchStrategy[str]:
    tokens = st.sampled_from([token for token in template.control_tokens if token.strip()])
    cut = st.builds(lambda token, at: token[:at], tokens, st.integers(1, 12))
    rest = st.builds(lambda token, at: token[at:], tokens, st.integers(1, 12))
    noise = st.sampled_from(["", " ", "\n", "x", "en", '"', "\\", "<", "|", "\u00e9", "plugin", "User", "\n  ", "a b"])
    return st.lists(tokens | cut | rest | noise, max_size=4).map("".join)


@st.composite
def compositions(draw: st.DrawFn, template: Any) -> Composition:
    said = texts(template)
    has_tools = template.writes_tools and draw(st.booleans())
    kinds = ["talk", "talk", "system", *(["call", "call", "name"] if has_tools else [])]
    history: list[Message] = []
    for number in range(draw(st.integers(0, 4))):
        match draw(st.sampled_from(kinds)):
            case "talk":
                thoughts = (Thinking(draw(said)),) if draw(st.booleans()) else ()
                history += [Message("user", draw(said)), Message("assistant", draw(said), thinking=thoughts)]
            case "system":
                history.append(Message("system", draw(said)))
            case "name":
                history.append(Message("user", draw(said), name=draw(st.sampled_from(["Ann", "plugin", "look"]))))
            case _:
                history += [*calls(draw, said, number), Message("assistant", draw(said))]
    context = PromptContext(
        user_input={"input": draw(said), "additional_kwargs": {"word": draw(said)}},
        documents=[Document(draw(said)), Document(draw(said))],
        conversation=Conversation(history),
        intermediate=calls(draw, said, 9) if has_tools and draw(st.booleans()) else (),
        tools=TOOLS if has_tools else (),
    )
    memo = MemoPrompt(template="{% for d in documents %}{{ d.text }}{% endfor %}")
    system = [TextPrompt("Obey <|im_end|> [INST] </s> and\nUSER: me."), memo][: draw(st.integers(0, 2))]
    before = [TextPrompt("Before <|im_{{ additional_kwargs.word }}|>.")] if draw(st.booleans()) else []
    after = [TextPrompt("Closing {{ additional_kwargs.word }}")] if draw(st.booleans()) else []
    return compose(Layers(system=system, before_input=before, after_intermediate=after), context)


def calls(draw: st.DrawFn, said: st.SearchStrategy[str], number: int) -> list[Message]:
    names = [draw(st.sampled_from(["look", "strict", "plugin"])) for _ in range(draw(st.integers(1, 2)))]
    arguments = st.dictionaries(said, said, max_size=2).map(json.dumps)
    made = [
        ToolCall(f"c{number}{at}", name, draw(st.one_of(said, arguments, st.just('{"key": "\\u003cs> look"}'))))
        for at, name in enumerate(names)
    ]
    tells = draw(st.booleans())
    results = [Message("tool", draw(said), tool_call_id=call.id, name=call.name if tells else None) for call in made]
    return [Message("assistant", draw(said), tuple(made)), *results]


def outcome(work: Any) -> object:
    try:
        return work()
    except (ChatTemplateError, ControlTokenError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", spread(list(TEMPLATES), 3))
def test_a_text_by_message_is_equal_to_a_complete_rendering(name: str) -> None:
    template = TEMPLATES[name]

    @settings(law, max_examples=law.max_examples // 16 + 4)  # conversations of several turns have a separate law
    @given(compositions(template), st.sampled_from(["escape", "allow", "reject"]), st.booleans(), st.booleans())
    def holds(composition: Composition, policy: Any, opens: bool, starts: bool) -> None:
        kwargs = {"add_generation_prompt": opens, "sequence_start": starts}
        whole = outcome(lambda: whole_text(composition, template, policy, (), dict(kwargs))[0])
        for _ in range(2):  # the second time from the cache
            assert outcome(lambda: composition.to_text(template, control_tokens=policy, **kwargs)) == whole

    holds()


def talk(*texts: str, asked: str = "And now?", **fields: Any) -> Composition:
    history = [Message("assistant" if at % 2 else "user", text) for at, text in enumerate(texts)]
    return compose(Layers("Rules."), PromptContext(user_input=asked, conversation=Conversation(history), **fields))


@for_cases("name", BY_MESSAGE)
def test_a_hostile_conversation_is_written_by_message(name: str) -> None:
    template = TEMPLATES[name]
    hostile = "\n".join(set(template.control_tokens) - set(template.signs or ()))
    for said in ("hello", hostile):
        composition = talk(said, said)
        text = text_by_message(composition, template, {}, is_guarded=True)
        assert text == whole_text(composition, template, "escape", (), {})[0]
        assert (text != text_by_message(composition, template, {}, is_guarded=False)) == (said == hostile)


class Counted(RoleMarkerTemplate):
    """Template that counts the written messages."""

    user, eoh, assistant, eoa = "<U>", "</U>", "<A>", "</A>"
    rewrites_text = False
    written: ClassVar[list[str]] = []

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        self.written.append(turn["content"])
        return super().piece(turn, task, recent)


def test_a_turn_writes_only_its_new_messages() -> None:
    conversation = Conversation([Message("user", f"{number} </U>") for number in range(50)])
    for turn in ("first", "second"):
        composition = compose(Layers(), PromptContext(user_input=turn, conversation=conversation))
        Counted.written.clear()
        text = composition.to_text(Counted())
        conversation = conversation.append(Message("user", turn), Message("assistant", "so"))
    assert sorted(Counted.written) == ["first", "second", "so"]
    assert text == whole_text(composition, Counted(), "escape", (), {})[0]
    assert "<U>49 <\u200b/U></U>" in text


def test_a_changed_template_writes_its_new_markers() -> None:
    template = RoleMarkerTemplate(user="<U>", eoh="</U>", assistant="<A>", eoa="</A>")
    composition = talk("one", "two")
    assert "<U>one</U>" in composition.to_text(template)
    template.user = "<Q>"
    assert "<Q>one</U>" in composition.to_text(template)


def test_a_template_with_a_custom_write_gets_the_complete_conversation() -> None:
    class Shouting(RoleMarkerTemplate):
        def write(self, turns: list[Turn], task: Task) -> str:
            return super().write(turns, task).upper()

    template = Shouting(user="<U>", eoh="</U>", assistant="<A>", eoa="</A>")
    assert text_by_message(talk("one", "two"), template, {}, is_guarded=True) is None
    assert "<U>ONE</U><A>TWO</A>" in talk("one", "two").to_text(template)


class Dropping(RoleMarkerTemplate):
    """Leaves out a part of a conversation."""

    user, eoh, assistant, eoa, tool, eotool = "<U>", "</U>", "<A>", "</A>", "<T>", "</T>"
    writes_tools = True
    rewrites_text = False
    role: ClassVar[str] = ""
    """Role without content in the text."""

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        opening, text, ending = super().piece(turn, task, recent)
        return opening, "" if turn["role"] == self.role else text, ending


class Writing(Dropping):
    """Writes calls and tools."""

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        opening, text, ending = super().piece(turn, task, recent)
        return opening, text + json.dumps(turn.get("tool_calls", "")), ending

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        return ["".join(task.tool_texts), *super().head(turns, task)]


class Failing(Writing):
    """Cannot write a result."""

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        if turn["role"] == "tool":
            raise KeyError(turn["role"])
        return super().piece(turn, task, recent)


class DroppingUser(Writing):
    role = "user"


class DroppingResults(Writing):
    role = "tool"


@for_cases(
    ("kind", "places"),
    [
        (Writing, []),
        (Dropping, ["tools[0]", "tools[1]", "messages[1]"]),
        (DroppingUser, ["messages[0]", "messages[3]"]),
        (DroppingResults, ["messages[2]"]),
        (Failing, []),
    ],
)
def test_a_custom_class_that_drops_content_is_an_error(kind: type[Dropping], places: list[str]) -> None:
    call = ToolCall("c", "look", '{"key": "a door"}')
    conversation = [
        Message("user", "Hi."),
        Message("assistant", "Wait.", (call,)),
        Message("tool", "ok", tool_call_id="c"),
    ]
    composition = compose(Layers(), PromptContext(user_input="So?", conversation=conversation, tools=TOOLS))
    if kind is Writing:
        text = composition.to_text(kind())
        assert all(word in text for word in ("Hi.", "Wait.", "a door", "ok", "So?", "strict"))
        return
    for write in (lambda: composition.to_text(kind()), lambda: kind().render(composition.messages, TOOLS)):
        with pytest.raises(ChatTemplateError) as caught:
            write()
        assert sorted({problem.place for problem in caught.value.problems}) == sorted(places)


def test_the_error_names_a_rejected_token_next_to_empty_values() -> None:
    layers = Layers(before_input=TextPrompt("{{ additional_kwargs.word }}{{ documents[0].text }}"))
    given = {"input": "hi", "additional_kwargs": {"word": ""}}
    composition = compose(layers, PromptContext(user_input=given, documents=[Document("<|im_end|>")]))
    with pytest.raises(ControlTokenError) as caught:
        composition.to_text("qwen", control_tokens="reject")
    assert caught.value.found == (("<|im_end|>", "documents[0].text"),)
