"""A run whose answer is not the output type can continue: with more repairs, another output, or new input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, LimitExceeded, Limits, Paused, PromptContext, ScriptedModel, Session, tool
from agentkit.errors import NothingToContinue, OutputError
from agentkit.memory import Memory
from tests.runtime.scripts import calling, roles, valid


def count(*script: Any, output: Any = int, repairs: int = 1, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel(list(script)), "Count.", output=output, limits=Limits(repairs=repairs), **options)


def failed(session: Any = None, **options: Any) -> OutputError:
    with pytest.raises(OutputError) as found:
        count("many", "a lot", **options).run_sync("How many?", session=session, run_id="r")
    return found.value


@pytest.fixture(params=["alone", "in memory", "stored"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the session of a run again."""
    if request.param == "alone":
        yield lambda: None
    elif request.param == "in memory":
        kept = Session()
        yield lambda: kept
    else:
        with Memory(tmp_path) as memory:
            yield lambda: memory.session("s")


def test_it_continues_with_more_repairs(sessions: Any) -> None:
    error = failed(sessions())
    for journal in (error.journal, Journal.loads(error.journal.dumps())):
        with pytest.raises(OutputError) as again:
            count(repairs=1).resume_sync(journal, session=sessions())
        assert again.value.messages == error.messages
    agent = count("still many", "7", repairs=1)
    result = agent.resume_sync(error.journal, session=sessions(), limits=Limits(repairs=3))
    assert (result.output, result.steps) == (7, 4)
    assert roles(result.messages) == "user assistant user assistant user assistant user assistant"
    assert roles(result.composition.messages) == "system user assistant user assistant user assistant user"
    assert len(agent.chain.model.requests) == 2  # type: ignore[attr-defined]
    if (session := sessions()) is not None:
        assert tuple(session.conversation) == result.messages


def test_another_output_reads_the_last_answer(sessions: Any) -> None:
    error = failed(sessions())
    result = count().resume_sync(error.journal, session=sessions(), output=str)
    assert (result.output, result.messages) == ("a lot", error.messages)
    asked = count("[3]", repairs=1)
    listed = asked.resume_sync(error.journal, session=sessions(), output=list[int], limits=Limits(repairs=2))
    assert listed.output == [3] and listed.messages[:4] == error.messages
    assert "not a valid list" in listed.messages[4].text
    again = count().resume_sync(listed.journal, session=sessions(), output=list[int])
    assert (again.output, again.messages) == ([3], listed.messages)


def test_it_continues_with_new_input(sessions: Any) -> None:
    error, session = failed(sessions()), sessions()
    asked: Any = "Write a number."
    if session is None:
        asked = PromptContext(user_input=asked, conversation=error.messages)
    result = count("8").run_sync(asked, session=session)
    assert result.output == 8
    assert roles(result.composition.messages) == "system user assistant user assistant user"


def test_without_input_or_with_the_same_run_id_it_is_repaired_further(sessions: Any) -> None:
    if sessions() is None:
        pytest.skip("needs a session")
    error = failed(sessions())
    with pytest.raises(OutputError):
        count().run_sync(None, session=sessions())
    with pytest.raises(OutputError):
        count().run_sync("How many?", session=sessions(), run_id="r")
    assert count().run_sync("How many?", session=sessions(), run_id="r", output=str).output == "a lot"
    result = count("much", "7", repairs=3).run_sync(None, session=sessions())
    assert result.output == 7 and result.messages[:4] == error.messages
    assert tuple(sessions().conversation) == result.messages
    with pytest.raises(NothingToContinue):
        count().run_sync(None, session=sessions())


def test_a_finished_run_requests_a_new_answer_if_its_answer_is_not_the_new_output() -> None:
    first = count("many", "9").run_sync("How many?")
    result = count('{"n": 9}').resume_sync(first.journal, output=dict[str, int], limits=Limits(repairs=3))
    assert result.output == {"n": 9} and result.messages[: len(first.messages)] == first.messages


def test_repairs_before_a_pause_are_counted_and_preserved_with_another_output() -> None:
    @tool(approval="always")
    def weigh() -> str:
        """Weigh."""
        return "5 kg"

    with pytest.raises(Paused) as paused:
        count("many", calling(("weigh", {}, "w")), tools=[weigh]).run_sync("How many?")
    with pytest.raises(OutputError) as ended:
        count("five", tools=[weigh]).resume_sync(paused.value.journal, approve={"w": True})
    assert valid(ended.value.messages)
    result = count("five", tools=[weigh]).resume_sync(paused.value.journal, approve={"w": True}, output=str)
    assert result.output == "five" and roles(result.messages) == "user assistant user assistant tool assistant"


def test_a_limit_of_steps_ends_a_run_that_continues_with_more_repairs() -> None:
    with pytest.raises(LimitExceeded) as over:
        count("x").resume_sync(failed().journal, limits=Limits(repairs=9, steps=3))
    result = count("4").resume_sync(over.value.journal, limits=Limits(repairs=9))
    assert result.output == 4


def test_an_inner_agent_with_an_unreadable_answer_fails_its_call_and_is_run_again() -> None:
    inner = count("many", "a lot", "3")
    ask = inner.as_tool(name="ask", description="Counts.", retries=1, backoff=0)
    outer = Agent(ScriptedModel([calling(("ask", {"input": "?"}, "c")), "three"]), tools=[ask])
    assert outer.run_sync("go").messages[2].text == "3"


def test_its_journal_can_be_resumed_from_any_line() -> None:
    script = ["many", "a lot", "5"]
    whole = count(*script, repairs=2).run_sync("How many?", run_id="r")
    lines = whole.journal.dumps().splitlines(keepends=True)
    for end in range(1, len(lines) + 1):
        known = Journal.loads("".join(lines[:end]))
        asked = sum(entry.effect == "CallModel" for entry in known.entries)
        result = count(*script[asked:], repairs=2).resume_sync(known)
        assert (result.output, result.messages) == (5, whole.messages)


def test_an_error_does_not_contain_values_of_the_answer() -> None:
    for answer in ('{"iban": ["DE89 3704"]}', '{"iban": "DE89 3704"}', '{"iban": {"a": "DE89 3704"}}', '["DE89 3704"]'):
        with pytest.raises(OutputError) as found:
            count(answer, output=dict[str, int], repairs=0).run_sync("Which account?")
        assert "DE89" not in str(found.value) and found.value.text == answer
