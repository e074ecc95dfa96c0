"""Views of compositions, journals, sessions, recall and differences: plain JSON with correct data."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Document, Journal, Message, OutputSpec, ScriptedModel, Session, ToolCall, Usage
from agentkit.errors import JournalError
from agentkit.inspector.agent_view import agent_view, statistics_view
from agentkit.inspector.composition_view import MAX_PIECE, composition_view, message_view, prompt_views
from agentkit.inspector.diff_view import diff_view
from agentkit.inspector.edits import edited_layers
from agentkit.inspector.journal_view import events_view, journal_view, waiting_calls
from agentkit.inspector.past_contexts import turn_bounds, turn_context
from agentkit.inspector.payload_view import payload_view
from agentkit.inspector.recall_view import recall_view
from agentkit.inspector.session_view import run_ids_of_turns, session_view, turns_view
from agentkit.memory import Memory, Scope
from agentkit.prompts import (
    ContextError,
    Conversation,
    Example,
    ExamplesPrompt,
    KwargsError,
    Layers,
    MemoPrompt,
    PromptContext,
    PromptError,
    Size,
    TemplateError,
    TextPrompt,
    ToolPrompt,
    ToolSpec,
    WrapPrompt,
    compose,
)
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.runs.run_record import RunFigures, RunState
from agentkit.tools import DynamicToolset, tool
from tests.inspector.shop import calls, customer_input, finished, layers, reply, support, talk, waiting
from tests.raising import raises


def text_of(message: dict[str, Any]) -> str:
    return "".join(piece["text"] for piece in message["pieces"] if "text" in piece)


def test_the_pieces_of_a_view_are_the_text_that_is_sent_and_its_layers_add_up() -> None:
    composition = support().compose(customer_input("Hi"))
    view = json.loads(json.dumps(composition_view(composition)))
    assert [text_of(message) for message in view["messages"]] == [message.text for message in composition.messages]
    assert sum(row["tokens"] for row in view["layers"]) == view["tokens"] == composition.tokens
    assert sum(row["share"] for row in view["layers"]) == pytest.approx(1)
    assert view["layers"][0]["place"] == "tools"
    spans = {(span.prompt, span.line, span.pointer, span.trust) for span in composition.spans}
    pieces = [piece for message in view["messages"] for piece in message["pieces"] if "text" in piece]
    assert {(one["prompt"], one.get("line"), one.get("pointer", ""), one["trust"]) for one in pieces} == spans


def test_a_cache_point_is_at_the_end_of_the_prefix() -> None:
    composition = support().compose(customer_input("Hi"), session=talk(2))
    view = composition_view(composition)
    marks = [
        (number, piece["cache"])
        for number, one in enumerate(view["messages"])
        for piece in one["pieces"]
        if "cache" in piece
    ]
    assert marks == [(0, "static"), (4, "conversation")]
    assert [row["layer"] for row in view["layers"] if row["cached"]] == [
        "tools",
        "system[0]",
        "system[1]",
        "conversation",
    ]
    changing = Layers([TextPrompt("Fixed."), TextPrompt("{{ now }}", volatility="turn")])
    volatile = compose(changing, PromptContext(user_input="x"))
    pieces = composition_view(volatile)["messages"][0]["pieces"]
    assert pieces[0]["text"] == "Fixed." and pieces[1] == {"cache": "static", "tokens": 6}


def test_items_that_are_not_sent_are_listed_with_the_reason() -> None:
    prompt = MemoPrompt(size=Size(cut="items"))
    documents = [Document(f"Document {number} " + "word " * 40, id=str(number)) for number in range(60)]
    view = composition_view(
        compose(Layers(before_input=prompt), PromptContext(user_input="x", documents=documents), budget=200)
    )
    gone = [one["pointer"] for one in view["unsent"]]
    assert gone[-1] == "documents[59]" and len(gone) > 50
    assert "budget" in view["unsent"][0]["why"]
    row = next(row for row in view["layers"] if row["layer"] == "before_input[0]")
    assert row["status"] == "trimmed" and "of 60" in row["why"]


def test_a_long_piece_is_cut_and_can_be_read_completely() -> None:
    text = "word " * 100_000
    composition = support().compose(customer_input(text))
    piece = composition_view(composition)["messages"][-1]["pieces"][-1]
    assert len(piece["text"]) == MAX_PIECE and piece["omitted"] == len(text) - MAX_PIECE
    number = len(composition.messages) - 1
    assert message_view(composition, number)["pieces"][-1]["text"] == text
    with raises(PromptError, name="message", value=99):
        message_view(composition, 99)


def test_every_model_call_of_a_run_is_composed_again_as_it_was_sent() -> None:
    session = talk(3)
    sent: list[Any] = []
    agent = support(
        lambda one: sent.append(one) or reply(calls(("c1", "order", '{"number": 1}'))),
        lambda one: sent.append(one) or reply(calls(("c1", "nothing", "{}"), ("", "order", "{oops"))),
        lambda one: sent.append(one) or "Done.",
    )
    journal = agent.run_sync(customer_input("Where?"), session=session).journal
    for known in (journal, Journal.loads(journal.dumps())):
        again = [agent.chain.compose(ctx) for ctx in replayed_contexts(agent.definition, known, session)]
        assert [one.messages for one in again] == [one.messages for one in sent]
        assert [one.to_openai() for one in again] == [one.to_openai() for one in sent]
    session.rewind(2)
    with raises(JournalError, name="conversation"):
        replayed_contexts(agent.definition, journal, session)
    with raises(JournalError, name="session", value="ada"):
        replayed_contexts(agent.definition, journal, None)


def test_a_run_that_continues_a_session_is_composed_again_with_its_earlier_input() -> None:
    session, sent = talk(3), list[Any]()

    def fail(composition: Any) -> Any:
        raise RuntimeError("gone")

    with raises(RuntimeError, args=("gone",)):
        support(lambda _: reply(calls(("c1", "order", '{"number": 1}'))), fail).run_sync(
            customer_input("Where?"), session=session
        )
    agent = support(lambda one: sent.append(one) or "Done.")
    journal = agent.run_sync(None, session=session).journal
    (ctx,) = replayed_contexts(agent.definition, journal, session)
    assert ctx.user_input.text == "Where?" and [one.role for one in ctx.intermediate] == ["assistant", "tool"]
    assert [agent.chain.compose(ctx).messages] == [one.messages for one in sent]


def test_the_interrupted_call_of_a_failed_or_paused_run_is_in_its_contexts() -> None:
    paused = waiting()
    agent = support()
    assert len(replayed_contexts(agent.definition, paused.journal)) == 2
    cut = Journal.loads(paused.journal.dumps())
    cut.entries = cut.entries[:-1]  # the reply is lost: the call was in progress
    assert len(replayed_contexts(agent.definition, cut)) == 2


def test_tools_of_a_run_are_not_created_again_for_its_contexts() -> None:
    @tool(approval="always")
    def look(word: str) -> str:
        return word

    @tool(final=True)
    def answer(word: str) -> str:
        return word

    made: list[PromptContext] = []

    def tools(context: PromptContext) -> list[Any]:
        made.append(context)
        return [look, answer]

    model = ScriptedModel([reply(calls((name, name, '{"word": "x"}'))) for name in ("look", "answer")])
    agent = Agent(model, tools=DynamicToolset(tools))
    journal = agent.run_sync("hi", approve=lambda call: True).journal
    contexts = replayed_contexts(agent.definition, journal)
    assert [agent.chain.compose(ctx).messages for ctx in contexts] == [sent.messages for sent in model.requests]
    assert [[spec.name for spec in ctx.tools] for ctx in contexts] == [["look", "answer"]] * 2
    assert len(made) == 1


def test_a_changed_agent_with_other_steps_is_refused() -> None:
    journal = Agent(ScriptedModel(["Hi"]), memory=lambda query: []).run_sync("hi").journal
    with raises(JournalError, name="Recall", value="Append"):
        replayed_contexts(Agent(ScriptedModel([])).definition, journal)


def test_steps_of_a_changed_agent_are_refused_by_name() -> None:
    def book(name: str) -> str:
        """Book."""
        return name

    booking = ScriptedModel([reply(calls(("c1", "book", '{"name": "x"}')))])
    spec = OutputSpec(book, output_validator=lambda output: None)
    journal = Agent(booking, output=spec).run_sync("hi").journal
    with raises(JournalError, name="CheckOutput", value="Append"):
        replayed_contexts(Agent(ScriptedModel([]), output=book).definition, journal)

    @tool(approval="always")
    def final_answer(word: str) -> str:
        """Answer."""
        return word

    answering = ScriptedModel([reply(calls(("c1", "final_answer", '{"word": "x"}'))), "Done."])
    journal = Agent(answering, tools=[final_answer]).run_sync("hi", approve=lambda call: True).journal
    typed = Agent(ScriptedModel([]), output=OutputSpec(dict[str, str], mode="tool"))
    with raises(JournalError, name="CallTools", value="Append"):
        replayed_contexts(typed.definition, journal)


def test_contexts_do_not_depend_on_prompts_that_cannot_be_rendered_now() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def needing(*names: str) -> Layers:
        return Layers(
            before_input=[*(TextPrompt(f"{{{{ additional_kwargs.{name} }}}}") for name in names), MemoPrompt()]
        )

    def remember(query: str) -> list[Document]:
        return [Document("Found.")]

    model = ScriptedModel([reply(calls(("c1", "look", "{}"))), "Done."])
    agent = Agent(model, layers=needing(), tools=[look], memory=remember)
    journal = agent.run_sync("hi").journal
    changed = agent.with_changes(layers=needing("customer"))
    contexts = replayed_contexts(changed.definition, journal)
    assert contexts == replayed_contexts(agent.definition, journal) and len(contexts) == 2
    assert contexts[1].documents and [one.role for one in contexts[1].intermediate] == ["assistant", "tool"]
    with raises(KwargsError):
        changed.chain.preflight(contexts[1].user_input)


def test_a_run_that_stopped_before_its_first_model_call_has_a_context_with_every_result_so_far() -> None:
    class Latest:
        async def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return examples[-1:]

    pool = ExamplesPrompt(examples=[Example("a", "b"), Example("c", "d")], selector=Latest())
    agent = Agent(
        ScriptedModel(["Hi"]),
        layers=Layers(before_input=[pool, MemoPrompt()]),
        tools=DynamicToolset(lambda context: [tool(text_of)]),
        memory=lambda query: [Document("Found.")],
    )
    journal = agent.run_sync("hi").journal
    names = [entry.effect for entry in journal.entries]
    assert names[:4] == ["Begin", "Equip", "SelectExamples", "Recall"]
    for count in range(len(names)):
        cut = Journal.loads(journal.dumps())
        cut.entries = cut.entries[:count]
        (ctx,) = replayed_contexts(agent.definition, cut)
        assert (bool(ctx.tools), bool(ctx.selections), bool(ctx.documents)) == (count > 1, count > 2, count > 3)


def test_a_turn_without_a_journal_is_composed_from_the_conversation() -> None:
    session = talk(7)
    ctx, steps, answer = turn_context(support(), session, 4)
    assert answer is not None and answer.text.startswith("Answer 4")
    assert steps == 2 and ctx.user_input.text.startswith("Question 4")
    assert [message.role for message in ctx.intermediate] == ["assistant", "tool"]
    assert len(ctx.conversation) == 8
    first, _, called = turn_context(support(), session, 4, step=1)
    assert len(first.intermediate) == 0 and called is not None and called.tool_calls
    session.append(Message("user", "Is somebody there?"))
    assert turn_context(support(), session, 7).reply is None
    for turn, step, name in ((8, None, "turn"), (-1, None, "turn"), (0, 2, "step"), (0, 0, "step")):
        with raises(PromptError, name=name):
            turn_context(support(), session, turn, step=step)


def test_turns_start_at_messages_of_the_user() -> None:
    conversation = [
        Message("assistant", "Hello"),
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", "c"),
    ]
    assert turn_bounds(Conversation(conversation)) == [0, 1, 3, 4]
    assert turn_bounds(Conversation()) == [0]


def test_a_session_of_a_thousand_turns_is_a_line_each() -> None:
    session = talk(999)
    session.append(Message("user", "Again?"), key="r2:0")
    session.append(Message("assistant", "Again."), Message("user", "And now?"), key="r3:0")
    runs = run_ids_of_turns(session, turn_bounds(session.conversation))
    assert [*runs.values()] == ["r2", "r3"] and run_ids_of_turns(session, ()) == {}
    view = session_view(session, runs=runs)
    assert (view["count"], len(json.dumps(view)) < 15_000) == (1001, True)
    turns = [one for start in range(0, 1100, 50) for one in turns_view(session, start, runs=runs)]
    assert [one["turn"] for one in turns] == [*range(1001)] and turns[-len(view["turns"]) :] == view["turns"]
    assert turns[4]["tools"] == ["order"] and [one.get("run") for one in turns[-3:]] == [None, "r2", None]
    assert sum(turn["tokens"] for turn in turns) == view["tokens"]
    assert max(turn["tokens"] for turn in turns) == view["most"]


def test_a_journal_is_a_timeline_with_its_costs() -> None:
    view = json.loads(json.dumps(journal_view(JournalOutline.of(finished()))))
    assert [event["kind"] for event in view["events"]] == ["begin", "recall", "model", "tool", "model"]
    assert view["events"][3]["arguments"] == '{"number": 1042}' and view["events"][3]["status"] == "success"
    assert view["usage"]["input"] == 2100 and view["usage"]["money"] == pytest.approx(0.0047, abs=0.0001)
    assert view["events"][1]["hits"][0]["parts"] == {"bm25": 0.55, "dense": 0.38, "age": -0.02}


def test_steps_of_a_timeline_have_the_times_that_the_journal_proves() -> None:
    journal = finished()
    for at, entry in enumerate(journal.entries):
        journal.entries[at] = entry._replace(at=100.0 + at)
    view = journal_view(JournalOutline.of(journal))
    times = [(event["began"], event["ended"]) for event in view["events"]]
    assert (view["began"], times[0], times[-1][1]) == (100.0, (None, 100.0), journal.entries[-2].at)
    assert view["ended"] == 100.0 + len(journal.entries) - 1 and times[1] == (100.0, 101.0)
    old = finished()
    old.entries = [entry._replace(at=None) for entry in old.entries]
    view = journal_view(JournalOutline.of(old))
    assert (view["began"], view["ended"], view["events"][2]["ended"]) == (None, None, None)


def test_waiting_calls_have_the_ids_that_decisions_use() -> None:
    paused = waiting()
    assert set(waiting_calls(paused.journal)) == {call.id for call in paused.calls} == {"c2"}
    inner = support(reply(calls(("i1", "refund", '{"number": 1, "amount": 2}'))), name="inner")
    outer = Agent(
        ScriptedModel([calls(("o1", "desk", '{"input": "refund"}'))]),
        tools=[Agent(inner.chain.model, "Help.", tools=[*inner.tools.values()]).as_tool(name="desk", description="d")],
    )
    with pytest.raises(type(paused)) as nested:
        outer.run_sync("go")
    journal = nested.value.journal
    assert set(waiting_calls(journal)) == {call.id for call in nested.value.calls} == {"o1/i1"}
    tool = journal_view(JournalOutline.of(journal))["events"][-1]
    assert tool["status"] == "running" and tool["inner"]["agent"] == journal.inner["o1"].agent
    events = events_view(JournalOutline.of(journal.inner["o1"]), 0)
    assert len(events) == tool["inner"]["count"] and events[-1]["calls"][0]["name"] == "refund"


def test_parts_of_an_outline_are_the_steps_of_its_journal() -> None:
    @tool
    def look(at: int) -> int:
        """Look."""
        return at

    looks = [Message("assistant", "", tool_calls=tuple([ToolCall("", "look", '{"at": 1}')] * 3)) for _ in range(4)]
    inner = Agent(ScriptedModel([*looks, "In."]), "Look.", tools=[look], name="inner")
    ask = inner.as_tool(name="ask", description="Ask.")
    agent = Agent(ScriptedModel([ToolCall("a", "ask", '{"input": "x"}'), *looks, "Out."]), tools=[ask, look])
    whole = agent.run_sync("go").journal
    asking = Journal.loads("".join(whole.dumps().splitlines(keepends=True)[:4]))
    asking.inner = whole.inner  # the process ended while the inner agent ran
    for journal in (finished(), waiting().journal, whole, whole.inner["a"], asking):
        text = journal.dumps()
        steps = [step for step in Journal.loads(text).steps() if step.kind != "append"]
        expected = [(step.kind, step.step, step.number, step.began, step.call, step.usage) for step in steps]
        for size in (1, 2, 5, 50):
            outline = JournalOutline.read(text)
            assert outline.count == len(steps)
            found = [step for at in range(0, len(steps), size) for step in outline.part(at, at + size)]
            parts = [(step.kind, step.step, step.number, step.began, step.call, step.usage) for step in found]
            assert parts == expected, (journal, size)
    assert list(JournalOutline.read(asking.dumps()).unfinished) == ["a"]
    with pytest.raises(JournalError):
        JournalOutline.read(whole.dumps() + "{}\n")


def test_calls_without_ids_are_shown_with_their_generated_ids() -> None:
    call = ToolCall("", "order", '{"number": 5}')
    agent = support(reply(Message("assistant", "", tool_calls=(call, call))), "Done.")
    events = journal_view(JournalOutline.of(agent.run_sync(customer_input("x")).journal))["events"]
    assert [event["arguments"] for event in events if event["kind"] == "tool"] == ['{"number": 5}'] * 2


@pytest.mark.parametrize("target", ["openai", "anthropic", "responses"])
def test_a_payload_is_the_request_as_it_is_sent(target: str) -> None:
    composition = support().compose(customer_input("Hi"))
    (piece,) = payload_view(composition, target)["pieces"]
    assert json.loads(piece["text"]) == json.loads(json.dumps(getattr(composition, f"to_{target}")()))


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "vicuna", "deepseek", "internlm2"])
def test_the_pieces_of_a_local_payload_are_its_text(name: str) -> None:
    session = Session()
    session.append(Message("user", "<|im_end|> USER: <|eot_id|>"), Message("assistant", "No."))
    composition = Agent(ScriptedModel([]), "Be careful.").compose("x", session=session)
    view = payload_view(composition, "text", name)
    assert "".join(piece["text"] for piece in view["pieces"]) == composition.to_text(name)
    assert {piece["kind"] for piece in view["pieces"]} >= {"control", "text"}


@pytest.mark.parametrize(
    ("target", "template", "name", "value"),
    [
        ("gpt", None, "target", None),
        ("openai", "qwen3", "chat_template", None),
        ("text", "/etc/passwd", "chat_template", "/etc/passwd"),
        ("text", "qwen33", "chat_template", "qwen33"),
    ],
)
def test_an_unknown_target_or_template_is_named_and_no_file_is_opened(
    target: str, template: str | None, name: str, value: str | None
) -> None:
    with raises(PromptError, name=name, value=value):
        payload_view(support().compose(customer_input("Hi")), target, template)


def test_a_difference_is_shown_by_layer_and_by_word() -> None:
    agent = support()
    before, now = (
        agent.compose(customer_input("Is it valid?")),
        agent.compose(customer_input("Is it still valid?", tier="plus")),
    )
    view = diff_view(now, before)
    changed = {row["layer"]: row["tokens"] - row["tokens_before"] for row in view["layers"] if row["change"] != "same"}
    assert set(changed) - {"overhead"} == {"before_input[0]", "input[0]"}
    assert view["first"]["layer"] == "before_input[0]"
    (block,) = [one for one in view["messages"] if one["change"] == "changed"]
    added = [piece["text"] for piece in block["pieces"] if piece["change"] == "added"]
    removed = [piece["text"] for piece in block["pieces"] if piece["change"] == "removed"]
    assert ([text.strip() for text in added], removed) == (["plus", "still"], ["gold"])
    whole = "".join(piece["text"] for piece in block["pieces"] if piece["change"] != "removed")
    assert whole == now.messages[-1].text
    assert diff_view(now, now)["first"] is None


def test_a_difference_of_long_texts_takes_at_most_linear_time() -> None:
    def of(size: int) -> float:
        one, other = (support().compose(customer_input(" ".join(f"{word}{at}" for at in range(size)))) for word in "ab")
        began = time.thread_time()
        diff_view(one, other)
        return time.thread_time() - began

    of(1_000)
    assert of(40_000) < 100 * max(of(4_000), 0.002)


def test_prompts_that_must_show_a_value_can_be_removed() -> None:
    layers = Layers(
        [ToolPrompt(), "Be brief."], before_input=WrapPrompt([MemoPrompt()], "<docs>{{ wrapped_str }}</docs>")
    )
    shown = edited_layers(layers, {"system[0]": "", "before_input[0]": ""})
    ctx = PromptContext("hi", documents=["Returns."], tools=[ToolSpec("add")])
    assert str(compose(shown, ctx)) == "system: Be brief.\n\nuser: hi"
    with pytest.raises(TemplateError, match="shows no prompt"):
        edited_layers(layers, {"before_input[0]": "<docs></docs>"})


def test_edited_layers_are_new_layers_with_references_to_their_prompts() -> None:
    known = layers()
    edited = edited_layers(
        known, {"system[1]": "Be kind.", "before_input[2].wrapped_prompts[0]": "{{ recalled | length }}"}
    )
    assert edited.system[1].template.text == "Be kind." and known.system[1].template.text != "Be kind."
    assert edited.system[0] is known.system[0]
    inner = edited.before_input[2]
    assert isinstance(inner, WrapPrompt) and inner.wrapped_prompts[0].template.text == "{{ recalled | length }}"
    assert edited_layers(known, {"system[0]": known.system[0].template.text}) is known
    assert (
        compose(edited_layers(Layers("Fixed {{ x"), {"system[0]": "{{ y"}), PromptContext(user_input="i")).system.text
        == "{{ y"
    )
    with pytest.raises(ContextError) as missing:
        edited_layers(known, {"system[2]": "", "nowhere": ""})
    assert [place for place, _ in missing.value.problems] == ["system[2]", "nowhere"]
    with raises(TemplateError, line=1, prompt="system[0]"):
        edited_layers(known, {"system[0]": "{% if %}"})
    with raises(PromptError, line=1, prompt="before_input[2].wrapped_prompts[0]", variable="nonsense"):
        edited_layers(known, {"before_input[2].wrapped_prompts[0]": "{{ nonsense }}"})


def test_the_prompts_of_a_tree_are_listed_with_their_templates() -> None:
    found = {one["path"]: one for one in prompt_views(support().compose(customer_input("Hi")))}
    assert found["before_input[2].wrapped_prompts[0]"]["name"] == "earlier"
    assert found["before_input[1]"]["size"]["cut"] == "items"
    json.dumps(found)


def test_a_recall_of_our_memory_explains_every_candidate(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in (("owl", "The barn owl hunts at night."), ("bird", "An owl is a bird."), ("tide", "Tides turn.")):
        (tmp_path / "docs" / f"{name}.txt").write_text(text, "utf-8")
    with Memory(tmp_path / "home", scope=Scope("t")) as memory:
        memory.ingest([tmp_path / "docs"])
        found = memory.recall("barn owl")
        agent = Agent(ScriptedModel(["An owl."]), "Be brief.", memory=memory)
        journal = Journal.loads(agent.run_sync("barn owl").journal.dumps())
    live = json.loads(json.dumps(recall_view(found)))
    assert [hit["score"] for hit in live["hits"]] == [one.score for one in found.explain()]
    assert live["hits"][0]["parts"]["bm25"] > live["hits"][1]["parts"]["bm25"]
    (event,) = [event for event in journal_view(JournalOutline.of(journal))["events"] if event["kind"] == "recall"]
    kept = {hit["id"]: hit["parts"] for hit in event["hits"]}
    assert kept == {hit["id"]: {name: round(part, 2) for name, part in hit["parts"].items()} for hit in live["hits"]}


def test_statistics_of_an_agent_count_errors_durations_and_days() -> None:
    states: list[RunState] = ["finished", "failed", "cancelled", "running", "waiting"]
    runs = [RunFigures(86_400.0 * (at // 50 + 1), float(at), states[at % 5], 10, 0.5) for at in range(100)]
    view = statistics_view([*runs, RunFigures(0.0, 0.0, "running", 1, 0.0)])
    assert (view["runs"], view["ended"], view["error_rate"]) == (101, 40, 0.5)
    assert view["percentiles"] == [(50, 46.0), (90, 86.0), (99, 96.0)]
    assert view["days"] == [
        {"day": f"1970-01-0{day}", "runs": 50, "failed": 10, "tokens": 500, "cost": 25.0} for day in (3, 2)
    ]
    assert statistics_view([]) == {"runs": 0, "ended": 0, "error_rate": None, "percentiles": [], "days": []}
    assert statistics_view(runs[1:2])["percentiles"] == [(50, 1.0), (90, 1.0), (99, 1.0)]
    view = json.loads(json.dumps(agent_view(support(), [])))
    assert [tool["name"] for tool in view["tools"]] == ["order", "refund"] and view["schema"]["required"] == [
        "customer"
    ]
    assert [prompt["path"] for prompt in view["prompts"]][:3] == ["system[0]", "system[1]", "before_input[0]"]


def test_usage_without_a_price_has_no_money() -> None:
    agent = Agent(ScriptedModel([reply("x")]), "Be brief.")
    assert journal_view(JournalOutline.of(agent.run_sync("hi").journal))["usage"] == {
        "input": 400,
        "output": 40,
        "cached": 200,
        "money": None,
    }
    assert Usage().money is None
