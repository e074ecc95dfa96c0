"""Conversations of several turns: scripts, functions and models play the user, and scores see all turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Message, ScriptedModel, ToolCall, tool
from agentkit.evals import (
    ConversationResult,
    EvalRow,
    EvaluationError,
    ModelUser,
    RowsError,
    ScriptedUser,
    called,
    contains,
    evaluate_sync,
    exact,
    judge,
    max_steps,
    max_tokens,
    no_tool_errors,
    not_called,
    recalled,
)
from agentkit.models import ModelUnavailable, Price, Reply, Usage
from agentkit.prompts import AdditionalInfoPrompt, Layers, Template
from agentkit.testing import assert_no_forged_roles
from tests.raising import raises

PRICE = Price(input=1, output=1)


def replied(text: str, tokens: int) -> Reply:
    return Reply(Message("assistant", text), usage=Usage(tokens, 0))


def echo(composition: Any) -> Any:
    return replied(f"You said: {composition.messages[-1].text}", 10)


def echoing(**options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(echo, price=PRICE), "You repeat.", name="parrot", **options)


def finished(row: EvalRow, result: Any) -> bool:
    return isinstance(result, ConversationResult)


def test_the_turns_of_a_user_are_one_conversation() -> None:
    async def later(row: EvalRow, turns: Sequence[Any]) -> str | None:
        await asyncio.sleep(0)
        return ["two", "three"][len(turns) - 1] if len(turns) < 3 else None

    def now(row: EvalRow, turns: Sequence[Any]) -> str | None:
        return {1: "two", 2: "three"}.get(len(turns))

    moves: list[Any] = [
        {"finished": False, "message": "two"},
        {"finished": False, "message": "three"},
        {"finished": True},
    ]
    users: list[tuple[Any, dict[str, Any]]] = [
        (ScriptedUser(["two", "three"]), {}),
        (None, {"script": ["two", "three"]}),
        (ScriptedUser(["other"]), {"script": ["two", "three"]}),
        (later, {}),
        (now, {}),
        (ModelUser(ScriptedModel(moves), "Count."), {}),
        (ModelUser(ScriptedModel(moves), max_turns=3), {"goal": "Count."}),
    ]
    for user, fields in users:
        seen: list[Any] = []

        def all_turns(row: EvalRow, result: Any, seen: list[Any] = seen) -> bool:
            seen.append(result)
            return True

        model = ScriptedModel.repeat(echo, price=PRICE)
        row = {"input": "one", "history": [{"role": "user", "content": "Hi"}], **fields}
        report = evaluate_sync(Agent(model, "x"), [row], [all_turns], simulated_user=user)
        (result,) = seen
        assert isinstance(result, ConversationResult) and len(result.turns) == 3
        texts = [message.text for message in result.messages]
        assert texts == ["one", "You said: one", "two", "You said: two", "three", "You said: three"], (user, fields)
        sent = [message.text for message in model.requests[-1].messages]
        assert sent == ["x", "Hi", *texts[:-1]]
        (outcome,) = report.outcomes
        assert (outcome.output, outcome.steps, outcome.usage.input_tokens) == ("You said: three", 3, 30)
        assert outcome.usage.money == pytest.approx(30e-6) and outcome.run_id == result.turns[-1].run_id


def test_scores_of_trajectories_cover_all_turns() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        if amount > 9:
            raise OSError("too much")
        return "paid"

    def reply(composition: Any) -> Any:
        message = composition.messages[-1]
        text = message.text
        if message.role == "user" and text.startswith("pay"):
            return ToolCall(name="pay", arguments={"amount": int(text.split()[1])})
        return replied("ok", 10)

    cases: list[tuple[Any, list[str], float]] = [
        (called("pay", times=2), ["pay 1", "pay 2", "bye"], 1),
        (called("pay", order=2, arguments={"amount": 2}), ["pay 1", "pay 2", "bye"], 1),
        (not_called("pay"), ["pay 1", "bye"], 0),
        (no_tool_errors, ["pay 10", "bye"], 0),
        (no_tool_errors, ["pay 1", "pay 2"], 1),
        (max_steps(4), ["pay 1", "pay 2"], 1),
        (max_steps(3), ["pay 1", "pay 2"], 0),
        (max_tokens(30), ["a", "b", "c"], 1),
        (max_tokens(29), ["a", "b", "c"], 0),
        (recalled("a.md"), ["a", "b"], 0),
    ]
    for score, texts, value in cases:
        agent = Agent(ScriptedModel.repeat(reply), "x", tools=[pay])
        report = evaluate_sync(agent, [{"input": texts[0], "script": texts[1:]}], [score])
        (result,) = report.outcomes[0].scores.values()
        assert not report.failures and result.value == value, (score.__name__, texts, result)


def test_a_judge_sees_all_turns() -> None:
    model = ScriptedModel([{"reason": "a", "passed": True}])
    evaluate_sync(echoing(), [{"input": "one", "script": ["two"]}], [judge(model, "x")])
    prompt = model.requests[0].messages[1].text
    assert "user: one\nassistant: You said: one\nuser: two\n</" in prompt and prompt.count("You said: two") == 1


def test_a_model_plays_the_user_and_its_costs_are_separate() -> None:
    moves = [replied('{"finished": false, "message": "17"}', 5), replied('{"finished": true}', 7)]
    model = ScriptedModel(moves, price=PRICE)
    user = ModelUser(model, "You want order 17.", stop="the order is named")
    report = evaluate_sync(echoing(), [{"input": "Hi"}], [finished], simulated_user=user)
    (outcome,) = report.outcomes
    assert outcome.overhead.input_tokens == 12 and outcome.usage.input_tokens == 20
    assert report.overhead.money == pytest.approx(12e-6)
    first, second = model.requests
    assert "the order is named" in first.messages[0].text and "You want order 17." in first.messages[1].text
    assert "assistant: You said: 17" in second.messages[1].text
    # No text of the agent or the row can instruct the model: it is fenced.
    context = first.context
    assert_no_forged_roles(user.agent.chain.layers, context)
    lines = second.messages[1].text.splitlines()
    fence = next(number for number, line in enumerate(lines) if line.startswith("<untrusted-"))
    assert lines.index("user: Hi") > fence and lines[-3].startswith("</untrusted-")


def test_a_conversation_ends_after_the_maximum_of_turns() -> None:
    model = ScriptedModel.repeat({"finished": False, "message": "more"})
    for turns in (1, 2, 5):
        user = ModelUser(model, "x", max_turns=turns)
        report = evaluate_sync(echoing(), [{"input": "Hi"}], [finished], simulated_user=user)
        assert report.outcomes[0].steps == turns and report.values("finished") == {"1": [1]}


def test_a_user_that_fails_is_the_error_of_its_row() -> None:
    def raising(row: EvalRow, turns: Sequence[Any]) -> Any:
        return 1 / 0

    nonsense = replied("nonsense", 3)
    users: list[tuple[Any, int]] = [
        (raising, 0),
        (lambda row, turns: 7, 0),
        (ModelUser(ScriptedModel.repeat(nonsense), "x"), 6),
        (ModelUser(ScriptedModel.repeat({"finished": False, "message": " "}), "x"), 0),
        (ModelUser(ScriptedModel.repeat(ModelUnavailable("down")), "x"), 0),
    ]
    rows: list[Any] = [{"input": "Hi"}, {"input": "Hi", "script": ["two"]}]
    for user, tokens in users:
        report = evaluate_sync(echoing(), rows, [finished], simulated_user=user)
        failed, other = report.outcomes
        assert failed.error.startswith("SimulatedUserError: ") and "turn 2" in failed.error
        # The first turn was paid for.
        assert failed.usage.input_tokens == 10 and failed.overhead.input_tokens == tokens, user
        assert not other.error and report.values("finished") == {"1": [0], "2": [1]}


def test_an_agent_that_fails_in_a_later_turn_keeps_the_costs_of_all_turns() -> None:
    model = ScriptedModel([replied("ok", 10), replied("ok", 10), ModelUnavailable("down")])
    report = evaluate_sync(Agent(model, "x"), [{"input": "1", "script": ["2", "3", "4"]}], [finished])
    (outcome,) = report.failures
    assert (outcome.usage.input_tokens, outcome.steps) == (20, 2) and outcome.run_id
    # A run that fails after replies made these calls.
    model = ScriptedModel.repeat("seven")
    (outcome,) = evaluate_sync(Agent(model, "x", output=int), [{"input": "1"}], [finished]).failures
    assert outcome.steps == len(model.requests) > 1


def test_a_killed_conversation_repeats_only_calls_in_flight(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    asked: list[str] = []
    kills: list[str] = []

    def ask(name: str) -> None:
        asked.append(name)
        if name in kills:
            raise Killed

    def reply(composition: Any) -> Any:
        text = composition.messages[-1].text
        ask(f"agent {text}")
        return replied(f"ok {text}", 10)

    def move(composition: Any) -> Any:
        turns = composition.messages[1].text.count("assistant: ok")
        ask(f"user {turns + 1}")
        if turns == 3:
            return replied('{"finished": true}', 5)
        return replied(f'{{"finished": false, "message": "say {turns + 1}"}}', 5)

    calls = ["agent Hi", "user 2", "agent say 2", "user 3", "agent say 3", "user 4"]
    agent = Agent(ScriptedModel.repeat(reply), "x", name="desk")
    for number, killed in enumerate(calls):
        asked.clear()
        user = ModelUser(ScriptedModel.repeat(move), "x")
        options: Any = {"out": tmp_path / f"{number}.jsonl", "simulated_user": user}
        rows: list[Any] = [{"input": "Hi", "expected": "say 3"}]
        kills[:] = [killed]
        with pytest.raises(BaseExceptionGroup):
            evaluate_sync(agent, rows, [contains], **options)
        kills.clear()
        report = evaluate_sync(agent, rows, [contains], **options)
        assert asked == [*calls[: number + 1], *calls[number:]], killed
        (outcome,) = report.outcomes
        assert (outcome.usage.input_tokens, outcome.overhead.input_tokens, outcome.steps) == (30, 15, 3)
        assert report.values("contains") == {"1": [1]}
        again = evaluate_sync(agent, rows, [contains], **options)
        assert again.outcomes == report.outcomes and len(asked) == 7
        for change in (ModelUser(ScriptedModel([]), "y"), ScriptedUser(["x"]), None):
            with pytest.raises(EvaluationError):
                evaluate_sync(agent, rows, [contains], **{**options, "simulated_user": change})
        with pytest.raises(EvaluationError):
            evaluate_sync(agent, [{**rows[0], "goal": "another"}], [contains], **options)


def test_kwargs_and_users_of_a_row_are_in_each_turn() -> None:
    model = ScriptedModel.repeat("ok")
    prompt = AdditionalInfoPrompt(Template("You work for {{ shop }}."), volatility="session")
    agent = Agent(model, layers=Layers(prompt))
    row = {"input": "1", "script": ["2"], "additional_kwargs": {"shop": "z"}}
    evaluate_sync(agent, [row], [finished])
    assert [request.messages[0].text for request in model.requests] == ["You work for z."] * 2


def test_invalid_users_and_rows_without_a_goal_are_refused_before_any_request(tmp_path: Path) -> None:
    model = ScriptedModel(["never"])
    user = ModelUser(model)
    rows: list[Any] = [{"input": "a"}, {"input": "b", "goal": "x"}, {"input": "c", "script": ["d"]}, {"input": "e"}]
    with pytest.raises(RowsError) as caught:
        evaluate_sync(echoing(), rows, [exact], simulated_user=user)
    assert [place for place, _ in caught.value.problems] == ["row 1.goal", "row 4.goal"]
    (tmp_path / "rows.yaml").write_text("- {input: a, script: one text}\n- {input: a, script: [1]}\n")
    with pytest.raises(RowsError) as caught:
        evaluate_sync(echoing(), tmp_path / "rows.yaml", [exact])
    assert [place for place, _ in caught.value.problems] == ["row 1.script", "row 2.script[0]"]
    cases: list[tuple[str, Any]] = [
        ("simulated_user", lambda: evaluate_sync(echoing(), [{"input": "a"}], [exact], simulated_user="Ada")),
        ("inputs", lambda: ScriptedUser("Hi")),
        ("inputs", lambda: ScriptedUser([1])),  # type: ignore[list-item]  # the error is the subject
        ("goal", lambda: ModelUser(model, None)),  # type: ignore[arg-type]  # the error is the subject
        ("stop", lambda: ModelUser(model, stop=7)),  # type: ignore[arg-type]  # the error is the subject
        ("max_turns", lambda: ModelUser(model, max_turns=0)),
        ("max_turns", lambda: ModelUser(model, max_turns=True)),
    ]
    for name, call in cases:
        with raises(EvaluationError, name=name):
            print(name, call())
    assert not model.requests
