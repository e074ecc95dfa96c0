"""Old tool results leave the prompt: placeholders, the tool that reads them, and the rest of the run unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentkit import Agent, Message, ScriptedModel, Session, Summarise, ToolCall, Trim
from agentkit.guards import personal_data
from agentkit.prompts import Composition, Conversation, Image, Layers, PromptContext, RenderCache, compose
from agentkit.sandbox import ProcessSandbox, code_mode
from agentkit.tools import ClearResults, Tool, ToolDefinitionError, ToolFailure, ToolResult, tool

PAGE = "word " * 500


@tool
def page(number: int) -> str:
    """Return a page."""
    return f"page {number} {PAGE}"


POLICIES = [(1, 0, 0), (2, 2_000, 0), (2, 2_000, 20), (3, 1_000, 0)]
"""Values of keep, batch and start."""


def result_of(number: int) -> Message:
    return Message("tool", f"page {number} {PAGE}", tool_call_id=f"page{number}", name="page")


def page_calls(*numbers: int, name: str = "page") -> list[ToolCall]:
    return [ToolCall(id=f"{name}{number}", name=name, arguments={"number": number}) for number in numbers]


def prompts(tools: Sequence[Any], replies: Sequence[Any], budget: int | None = None) -> list[Composition]:
    model = ScriptedModel(replies)
    Agent(model, "You read.", tools=tools, budget=budget).run_sync("Read.")
    return list(model.requests)


def shown(composition: Composition) -> list[str]:
    """Return, for each result, its number if it is shown, otherwise `-`."""
    results = [message for message in composition.messages if message.role == "tool"]
    return ["-" if "read_cleared_result" in message.text else message.text.split()[1] for message in results]


def test_old_results_are_cleared_in_batches() -> None:
    clear = ClearResults(keep=1, over=100, batch=1_200)
    sent = prompts([page, clear], [*page_calls(1, 2, 3, 4, 5), "Done."])
    assert [shown(each) for each in sent] == [
        [],
        ["1"],
        ["1", "2"],
        ["-", "-", "3"],
        ["-", "-", "3", "4"],
        ["-", "-", "-", "-", "5"],
    ]
    # Between two clearings, a prompt starts with the complete previous prompt.
    assert sent[4].messages[: len(sent[3].messages)] == sent[3].messages


def test_the_conversation_stays_complete_and_later_turns_send_the_same_placeholders() -> None:
    clear = ClearResults(keep=1, over=100, batch=0)
    model = ScriptedModel([*page_calls(1, 2, 3), "Done.", *page_calls(4), "Done again."])
    agent, session = Agent(model, tools=[page, clear]), Session("s")
    result = agent.run_sync("Read.", session=session)
    assert [message.text.count("word") for message in session.conversation if message.role == "tool"] == [500] * 3
    assert result.messages == tuple(session.conversation)
    last = model.requests[-1]
    agent.run_sync("More.", session=session)
    first, second = [*model.requests][-2:]
    assert shown(first) == ["-", "-", "3"]
    assert first.messages[: len(last.messages)] == last.messages
    assert shown(second) == ["-", "-", "-", "4"]
    assert agent.compose("Hi", session=session).messages[:-1] != tuple(session.conversation)


def test_the_model_reads_a_cleared_result_again() -> None:
    def read(composition: Composition) -> ToolCall:
        text = composition.messages[3].text
        reference = text.split('id="')[1].split('"')[0]
        assert "result of page, 6" in text
        return ToolCall(name="read_cleared_result", arguments={"id": reference, "start": 5, "length": 10})

    sent = prompts([page, ClearResults(keep=1, over=100, batch=0)], [*page_calls(1, 2), read, "Done."])
    assert sent[-1].messages[-1].text.startswith("1 word wor\n[Characters 5 to 15 of 2,507;")


def test_an_id_is_not_personal_data() -> None:
    # In hexadecimal digits, the id of the result of this page would be read as a telephone number.
    sent = prompts([page, ClearResults(keep=1, over=100, batch=0)], [*page_calls(179, 180), "Done."])
    text = sent[-1].messages[3].text
    assert "was removed" in text
    assert not [*personal_data(text)]


def test_an_unknown_id_is_a_failure_for_the_model() -> None:
    call = ToolCall(name="read_cleared_result", arguments={"id": "x"})
    assert "copy the id" in prompts([ClearResults()], [call, "Done."])[-1].messages[-1].text


def test_results_of_equal_call_ids_are_read_separately() -> None:
    numbers = iter((1, 2, 3))

    @tool
    def next_page() -> str:
        """Return the next page."""
        return f"page {next(numbers)} {PAGE}"

    model = ScriptedModel([ToolCall(name="next_page"), "Done."] * 3)
    agent = Agent(model, tools=[next_page, ClearResults(keep=1, over=100, batch=0)])
    session = Session("s")
    for _ in range(3):
        agent.run_sync("Go on.", session=session)
    composition = agent.compose("Hi", session=session)
    assert shown(composition) == ["-", "-", "3"]
    for position, number in ((2, 1), (6, 2)):
        reference = composition.messages[position].text.split('id="')[1].split('"')[0]
        model = ScriptedModel([ToolCall(name="read_cleared_result", arguments={"id": reference}), "Done."])
        result = agent.run_sync("Hi", session=session, model=model)
        assert result.messages[2].text.startswith(f"page {number} ")


def test_failures_denials_and_loaded_skills_stay() -> None:
    long = "x " * 2_000

    @tool
    def fails(number: int) -> str:
        """Fail."""
        raise ToolFailure(f"{long}{number}")

    @tool
    def breaks(number: int) -> str:
        """Fail."""
        raise ValueError(long)

    @tool
    def denies(number: int) -> ToolResult:
        """Deny."""
        return ToolResult("", "denies", f"denies was not called: {long}", "denied")

    @tool
    def load_skill(number: int) -> str:
        """Load."""
        return long

    @tool
    def succeeds(number: int) -> str:
        """Return text."""
        return long

    tools: list[Tool] = [fails, breaks, denies, load_skill, succeeds]
    calls = [call for each in tools for call in page_calls(1, name=each.name)]
    calls += [ToolCall(name="missing", arguments={"a": long}), ToolCall(name="succeeds", arguments={"number": long})]
    sent = prompts([*tools, ClearResults(keep=1, over=10, batch=0)], [*calls, *page_calls(2, name="succeeds"), "Done."])
    results = [message for message in sent[-1].messages if message.role == "tool"]
    cleared = ["was removed" in message.text for message in results]
    assert cleared == [False, False, False, False, True, False, False, False]


def test_results_that_start_like_failures_are_cleared() -> None:
    failures = []
    for start in ("was sunny", "ran, but slowly", "did not end", "failing", "failed", "waste"):

        @tool
        def weather(number: int, start: str = start) -> str:
            """Return the weather."""
            return f"weather {start} on day {number}: {PAGE}"

        tools = [weather, ClearResults(keep=1, over=100, batch=0)]
        last = prompts(tools, [*page_calls(1, 2, name="weather"), "Done."])[-1]
        if "was removed" not in last.messages[3].text:
            failures.append(start)
    assert not failures


def test_names_and_sizes_select_results() -> None:
    @tool
    def note(number: int) -> str:
        """Return a note."""
        return f"page {number} {PAGE}"

    cases = [
        (ClearResults(keep=1, over=100, batch=0, only=["note"]), ["1", "-", "3"]),
        (ClearResults(keep=1, over=100, batch=0, without=["note"]), ["-", "2", "3"]),
        (ClearResults(keep=1, over=1_000, batch=0), ["1", "2", "3"]),
        (ClearResults(keep=2, over=100, batch=0), ["-", "2", "3"]),
    ]
    for clear, expected in cases:
        sent = prompts([page, note, clear], [*page_calls(1), *page_calls(2, name="note"), *page_calls(3), "Done."])
        assert shown(sent[-1]) == expected, clear.clearing


def test_the_start_of_a_cleared_result_can_stay() -> None:
    sent = prompts([page, ClearResults(keep=1, over=100, batch=0, start=11)], [*page_calls(1, 2), "Done."])
    assert sent[-1].messages[3].text.startswith("page 1 word...\n[")


def test_media_of_a_cleared_result_are_read_again() -> None:
    image = Image(b"\x89PNG\r\n\x1a\n")

    @tool
    def photo() -> tuple[str, Image]:
        """Return a photo."""
        return ("A dog.", image)

    def read(composition: Composition) -> ToolCall:
        reference = composition.messages[3].text.split('id="')[1].split('"')[0]
        return ToolCall(name="read_cleared_result", arguments={"id": reference})

    sent = prompts(
        [photo, page, ClearResults(keep=1, batch=0)], [ToolCall(name="photo"), *page_calls(1), read, "Done."]
    )
    assert image in sent[1].messages[-1].parts
    assert image not in sent[2].messages[3].parts
    assert image in sent[3].messages[-1].parts


def test_the_layer_table_and_why_show_cleared_results() -> None:
    sent = prompts([page, ClearResults(keep=1, over=100, batch=0)], [*page_calls(1, 2), "Done."])[-1]
    rows = {row.layer: row for row in sent.explain()}
    assert rows["intermediate.cleared"].status == "trimmed"
    assert "1 of 2 results" in rows["intermediate.cleared"].why
    assert sum(row.tokens for row in rows.values()) == sent.tokens
    assert rows["overhead"].tokens == 8
    cleared, kept = sent.why("intermediate[1]"), sent.why("intermediate[3]")
    assert "was cleared" in cleared.reason
    assert "was cleared" not in kept.reason
    assert "read_cleared_result" in cleared.spans[0].text


def test_a_resumed_run_sends_the_same_prompts() -> None:
    clear = ClearResults(keep=1, over=100, batch=0)
    model = ScriptedModel([*page_calls(1, 2, 3), "Done."])
    journal = Agent(model, tools=[page, clear]).run_sync("Read.").journal
    lines = journal.dumps().splitlines()
    for end in range(3, len(lines)):
        try:
            cut = type(journal).loads("\n".join(lines[:end]))
        except ValueError:
            continue
        again = ScriptedModel(["Done."])
        resumed = Agent(again, tools=[page, clear]).resume_sync(cut)
        expected = [each.messages for each in model.requests]
        assert resumed.composition.messages in expected, end


def test_a_budget_cuts_the_results_that_clearing_leaves() -> None:
    clear = ClearResults(keep=1, over=100, batch=0)
    sent = prompts([page, clear], [*page_calls(1, 2, 3, 4), "Done."], budget=1_000)
    assert shown(sent[-1]) == ["-", "-", "-", "4"]
    assert all(each.tokens <= 1_000 for each in sent)
    tight = prompts([page, clear], [*page_calls(1, 2, 3, 4), "Done."], budget=900)[-1]
    assert shown(tight)[-1] == "4"
    assert len(shown(tight)) < 4
    assert sum(row.tokens for row in tight.explain()) == tight.tokens


def test_compaction_counts_the_placeholders_and_summarises_complete_results() -> None:
    clear = ClearResults(keep=1, over=100, batch=0)
    for with_clearing, is_cut in ((True, False), (False, True)):
        model = ScriptedModel([*page_calls(1, 2, 3), "Done.", "Yes."])
        tools: list[Any] = [page, clear] if with_clearing else [page]
        agent, session = Agent(model, tools=tools, compaction=Trim(tokens=1_500, keep=0)), Session("s")
        agent.run_sync("Read.", session=session)
        agent.run_sync("Again?", session=session)
        assert (model.requests[-1].context.conversation.start > 0) == is_cut
    model, notes = ScriptedModel([*page_calls(1, 2, 3), "Done.", "Yes."]), ScriptedModel(["Notes."])
    agent = Agent(model, tools=[page, clear], compaction=Summarise(notes, tokens=100, keep=0))
    session = Session("s")
    agent.run_sync("Read.", session=session)
    agent.run_sync("Again?", session=session)
    assert "page 1 word" in notes.requests[0].text


def test_calls_and_results_stay_together() -> None:
    clear = ClearResults(keep=1, over=100, batch=0)
    both = Message("assistant", tool_calls=[*page_calls(1, 2)])
    sent = prompts([page, clear], [both, *page_calls(3), "Done."])[-1]
    calls = [call.id for message in sent.messages for call in message.tool_calls]
    assert [message.tool_call_id for message in sent.messages if message.role == "tool"] == calls
    assert shown(sent) == ["-", "-", "3"]


def test_a_prompt_with_a_cache_is_the_prompt_without_a_cache() -> None:
    layers, cache = Layers("You read."), RenderCache()
    conversation, traffic = Conversation([Message("user", "Hi")]), Conversation()
    policies = [ClearResults(keep=keep, over=100, batch=batch, start=start) for keep, batch, start in POLICIES]
    for number in range(40):
        policy = policies[number // 12]
        added = [Message("assistant", tool_calls=page_calls(number)), result_of(number)]
        if number % 9 == 8:
            # The next turn: the traffic becomes a part of the conversation.
            conversation = conversation.append(*traffic, Message("assistant", "Done."), Message("user", "More."))
            traffic = Conversation()
        traffic = traffic.append(*added) if len(traffic) else Conversation(added)
        ctx = policy.add_to(PromptContext("Go on.", conversation=conversation, intermediate=traffic))
        with_cache = compose(layers, ctx, cache=cache)
        assert with_cache.messages == compose(layers, ctx).messages, number
        assert with_cache.tokens == compose(layers, ctx).tokens


def test_invalid_settings_are_refused_together() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        ClearResults(keep=0, over=-1, batch=True, only="page", without=[1])  # type: ignore[list-item]
    assert caught.value.names == ("keep", "over", "batch", "only", "without")
    for only in (["a"], []):
        with pytest.raises(ToolDefinitionError):
            ClearResults(only=only, without=["a"])
    with pytest.raises(ToolDefinitionError) as caught:
        Agent(ScriptedModel([]), tools=[page, ClearResults(without=["pages"])])
    assert caught.value.names == ("pages",)


def test_code_mode_names_the_toolset_that_it_refuses() -> None:
    with pytest.raises(ToolDefinitionError, match="ClearResults"):
        code_mode([page, ClearResults()], sandbox=ProcessSandbox())


def test_the_version_of_an_agent_depends_on_the_policy() -> None:
    versions = {
        Agent(ScriptedModel([]), tools=[page, ClearResults(keep=keep)]).definition.version.id for keep in (1, 2)
    }
    assert len(versions) == 2
