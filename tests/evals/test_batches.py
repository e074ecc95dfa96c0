"""Evaluations through the batch APIs of providers: half the price, resumable, and an error per failed line."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import Agent, ScriptedModel, Summarise, tool
from agentkit.evals import EvaluationError, ModelUser, contains, evaluate, evaluate_sync, max_money, read_report
from agentkit.models import (
    AnthropicModel,
    FallbackModel,
    ModelReplyError,
    ModelRequestError,
    OpenAIModel,
    OpenAIResponsesModel,
    Price,
)
from agentkit.models.model_errors import NetworkRefused
from agentkit.models.openai.openai_batches import OpenAIBatches
from agentkit.prompts import BasePrompt, Layers, PromptContext, UserInputPrompt
from agentkit.testing import no_real_models
from tests.batch_server import BatchServer
from tests.raising import raises

PRICE = Price(input=1, output=10, cached=0.1, long=(50, Price(input=2, output=20)))
ROWS: list[dict[str, Any]] = [{"input": text, "expected": text} for text in ("first", "second", "third")]


@pytest.fixture(scope="module")
def running() -> Iterator[BatchServer]:
    with BatchServer().run() as server:
        yield server


@pytest.fixture
def server(running: BatchServer) -> BatchServer:
    running.reset()
    running.answer = lambda key, body: f"You said {text_of(body)}"
    return running


def text_of(body: dict[str, Any]) -> str:
    """Return the text of the user in a request."""
    content = (body.get("messages") or body["input"])[-1]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def models(server: BatchServer) -> list[Any]:
    options: Any = {"api_key": "key", "price": PRICE}
    return [
        OpenAIModel("gpt", base_url=f"{server.url}/v1", **options),
        OpenAIResponsesModel("gpt", base_url=f"{server.url}/v1", **options),
        AnthropicModel("claude", base_url=server.url, **options),
    ]


def test_all_requests_are_one_batch_at_half_the_price(server: BatchServer, tmp_path: Path) -> None:
    server.polls = 1
    for number, model in enumerate(models(server)):
        options: Any = {"repeats": 2, "batch": True, "out": tmp_path / f"{number}.jsonl"}
        report = evaluate_sync(Agent(model, "Repeat."), ROWS, [contains, max_money(1)], **options)
        assert report.values("contains") == {row: [1, 1] for row in ("1", "2", "3")}, report.failures
        # 100 tokens of the prompt exceed the threshold of the price.
        assert [outcome.usage.money for outcome in report.outcomes] == pytest.approx([200e-6] * 6)
        (sent,) = server.sent.values()
        assert list(sent) == ["1-1", "1-2", "2-1", "2-2", "3-1", "3-2"]
        assert {body["model"] for body in sent.values()} == {model.name}
        # Each run has a journal, and a second call sends nothing.
        assert len(list((tmp_path / f"{number}.jsonl.runs").iterdir())) == 6
        again = evaluate_sync(Agent(model, "Repeat."), ROWS, [contains, max_money(1)], **options)
        assert again.reused == 6 and len(server.sent) == 1
        assert read_report(options["out"]).values("contains") == report.values("contains")
        server.sent.clear()


def test_typed_answers_are_read_and_not_repaired(server: BatchServer, tmp_path: Path) -> None:
    class City(BaseModel):
        name: str

    server.answer = lambda key, body: '{"name": "Paris"}' if key == "1-1" else "Paris"
    for number, model in enumerate(models(server)[:2]):
        agent: Agent[Any, City] = Agent(model, "x", output=City)
        report = evaluate_sync(agent, ROWS[:2], [max_money(1)], batch=True, out=tmp_path / f"{number}.jsonl")
        assert report.outcomes[0].output == {"name": "Paris"}
        assert report.outcomes[1].error.startswith("OutputError")


def test_runs_with_several_requests_are_refused_before_any_request(server: BatchServer, tmp_path: Path) -> None:
    @tool
    def look() -> str:
        """Look."""
        return ""

    class Tools:
        async def at(self, ctx: Any) -> Any:
            return [look]

    toolset: Any = Tools()
    model = models(server)[0]
    out = tmp_path / "out.jsonl"
    user = ModelUser(ScriptedModel([]), "x")
    cases: list[tuple[int, Agent[Any, Any], dict[str, Any]]] = [
        (1, Agent(model, "x", tools=[look]), {}),
        (1, Agent(model, "x"), {"tools": [look]}),
        (1, Agent(model, "x", tools=toolset), {}),
        (1, Agent(model, "x", compaction=Summarise(model, tokens=100)), {}),
        (1, Agent(ScriptedModel([]), "x"), {}),
        (1, Agent(FallbackModel(model, model), "x"), {}),
        (1, Agent("deepseek:deepseek-chat", "x"), {}),
        (1, Agent(model, "x"), {"model": ScriptedModel([])}),
        (1, Agent(model, "x"), {"simulated_user": user}),
        (1, Agent(model, "x"), {"rows": [{"input": "a", "script": ["b"]}]}),
        (1, Agent(model, "x"), {"rate": 1}),
        (1, Agent(model, "x"), {"money": 1}),
        (1, Agent(model, "x"), {"out": None}),
        (6, Agent(ScriptedModel([]), tools=[look]), {"out": None, "rate": 1, "money": 1, "simulated_user": user}),
    ]
    for count, agent, options in cases:
        with raises(EvaluationError, name="batch") as caught:
            print(
                options,
                evaluate_sync(agent, **{"rows": ROWS, "scores": [contains], "batch": True, "out": out, **options}),
            )
        assert len(caught.value.problems) == count, (options, caught.value.problems)
    assert not out.exists()
    with pytest.raises(NetworkRefused), no_real_models():
        evaluate_sync(Agent(model, "x"), ROWS, [contains], batch=True, out=out)
    assert not server.sent


FAILED: list[tuple[str, Any, str]] = [
    ("openai", {"response": None, "error": {"code": "batch_expired", "message": "late"}}, "ModelBatchError"),
    ("openai", {"response": None, "error": {"code": "batch_cancelled", "message": "x"}}, "ModelBatchError"),
    ("openai", {"response": None, "error": {"code": "request_timeout", "message": "x"}}, "ModelUnavailable"),
    ("openai", {"response": {"status_code": 400, "body": {"error": {"message": "bad"}}}}, "ModelRequestError"),
    ("openai", {"response": {"status_code": 429, "body": {"error": {"message": "slow"}}}}, "ModelRateLimited"),
    ("openai", {"response": {"status_code": 500, "body": {"error": {"message": "oh"}}}}, "ModelUnavailable"),
    ("openai", {"response": {"status_code": 200, "body": {"choices": []}}}, "ModelReplyError"),
    ("openai", {"response": {"status_code": 200, "body": {}}}, "ModelReplyError"),
    ("openai", {}, "ModelUnavailable"),
    ("openai", None, "ModelBatchError"),
    ("anthropic", {"type": "expired"}, "ModelBatchError"),
    ("anthropic", {"type": "canceled"}, "ModelBatchError"),
    (
        "anthropic",
        {"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}},
        "ModelRequestError",
    ),
    (
        "anthropic",
        {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error", "message": "oh"}}},
        "ModelUnavailable",
    ),
    ("anthropic", {"type": "succeeded", "message": {"type": "message", "content": []}}, "ModelReplyError"),
    (
        "anthropic",
        {"type": "succeeded", "message": {"type": "message", "content": [], "stop_reason": "pause_turn"}},
        "ModelBatchError",
    ),
    ("anthropic", {"type": "new kind"}, "ModelUnavailable"),
    ("anthropic", None, "ModelBatchError"),
]


def test_a_failed_line_is_the_error_of_its_row_and_is_sent_again_by_the_next_call(
    server: BatchServer, tmp_path: Path
) -> None:
    openai, _, anthropic = models(server)
    for number, (provider, line, kind) in enumerate(FAILED):
        server.reset()
        lines = {"2-1": line}

        def answer(key: str, body: dict[str, Any], lines: dict[str, Any] = lines) -> Any:
            return lines.get(key, f"You said {text_of(body)}")

        server.answer = answer
        agent = Agent(openai if provider == "openai" else anthropic, "x")
        options: Any = {"batch": True, "out": tmp_path / f"{number}.jsonl"}
        report = evaluate_sync(agent, ROWS, [contains], **options)
        assert report.values("contains") == {"1": [1], "2": [0], "3": [1]}, (provider, line)
        assert report.failures[0].error.startswith(f"{kind}: "), (line, report.failures[0].error)
        lines.clear()
        again = evaluate_sync(agent, ROWS, [contains], **options)
        assert again.reused == 2 and again.values("contains") == {"1": [1], "2": [1], "3": [1]}
        assert [list(batch) for batch in server.sent.values()] == [["1-1", "2-1", "3-1"], ["2-1"]], (provider, line)


def test_lines_of_results_end_at_line_feeds_only(server: BatchServer, tmp_path: Path) -> None:
    """JSON texts can contain other separators of lines."""
    for number, model in enumerate(models(server)):
        server.answer = lambda key, body: f"You said \u2028\x85 {text_of(body)}"
        report = evaluate_sync(Agent(model, "x"), ROWS, [contains], batch=True, out=tmp_path / f"{number}.jsonl")
        assert report.values("contains") == {"1": [1], "2": [1], "3": [1]}, model


def test_a_batch_that_ends_early_has_typed_errors_and_its_finished_lines(server: BatchServer, tmp_path: Path) -> None:
    agent = Agent(models(server)[0], "x")
    for end in ("expired", "cancelled", "failed"):
        server.reset()
        server.end = end
        server.answer = lambda key, body: "first" if key == "1-1" else None
        options: Any = {"batch": True, "out": tmp_path / f"{end}.jsonl"}
        report = evaluate_sync(agent, ROWS, [contains], **options)
        finished = 0 if end == "failed" else 1
        assert report.values("contains") == {"1": [finished], "2": [0], "3": [0]}
        for outcome in report.failures:
            assert outcome.error.startswith("ModelBatchError: ") and (
                end != "failed" or "no such model" in outcome.error
            )
        server.reset()
        server.answer = lambda key, body: text_of(body)
        again = evaluate_sync(agent, ROWS, [contains], **options)
        assert again.values("contains") == {"1": [1], "2": [1], "3": [1]}
        assert [len(batch) for batch in server.sent.values()] == [3 - finished]


async def test_an_interrupted_call_waits_for_the_batch_that_was_sent(server: BatchServer, tmp_path: Path) -> None:
    for number, model in enumerate(models(server)[::2]):
        server.polls = 1_000_000
        agent = Agent(model, "x")
        options: Any = {"batch": True, "out": tmp_path / f"{number}.jsonl"}
        task = asyncio.create_task(evaluate(agent, ROWS, [contains], **options))
        while not server.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.polls = 0
        report = await evaluate(agent, ROWS, [contains], **options)
        assert report.values("contains") == {"1": [1], "2": [1], "3": [1]} and len(server.sent) == 1
        server.sent.clear()
        server.asked.clear()


def test_an_interruption_of_the_scores_sends_no_request_again(server: BatchServer, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def score(row: Any, result: Any) -> bool:
        if is_killed and row.id == "2":
            raise Killed
        return True

    is_killed = True
    server.answer = lambda key, body: None if key == "3-1" else "ok"
    agent = Agent(models(server)[0], "x")
    options: Any = {"batch": True, "out": tmp_path / "out.jsonl", "concurrency": 1}
    with pytest.raises(BaseExceptionGroup):
        evaluate_sync(agent, ROWS, [score], **options)
    is_killed = False
    report = evaluate_sync(agent, ROWS, [score], **options)
    # The results were not evaluated, so that the failed line is read again and not sent again.
    assert report.values("score") == {"1": [1], "2": [1], "3": [0]} and len(server.sent) == 1
    server.answer = lambda key, body: "ok"
    report = evaluate_sync(agent, ROWS, [score], **options)
    assert report.values("score") == {"1": [1], "2": [1], "3": [1]} and len(server.sent) == 2


def test_errors_of_the_batch_api(server: BatchServer, tmp_path: Path) -> None:
    agent = Agent(models(server)[0], "x")
    server.broken = [500, 503, 429]
    report = evaluate_sync(agent, ROWS, [contains], batch=True, out=tmp_path / "busy.jsonl")
    assert not report.failures and len(server.sent) == 1
    # The provider has deleted the batch.
    server.broken = [404]
    options: Any = {"batch": True, "out": tmp_path / "deleted.jsonl"}
    report = evaluate_sync(agent, ROWS, [contains], **options)
    assert len(report.failures) == 3 and "ModelRequestError" in report.failures[0].error
    assert not evaluate_sync(agent, ROWS, [contains], **options).failures and len(server.sent) == 3
    # A wrong key: the batch is not forgotten.
    server.broken = [401]
    options = {"batch": True, "out": tmp_path / "key.jsonl"}
    report = evaluate_sync(agent, ROWS, [contains], **options)
    assert len(report.failures) == 3 and "ModelAuthError" in report.failures[0].error
    assert not evaluate_sync(agent, ROWS, [contains], **options).failures and len(server.sent) == 4
    wrong = Agent(OpenAIModel("gpt", api_key="key", base_url=f"{server.url}/v2"), "x")
    with pytest.raises(ModelRequestError):
        evaluate_sync(wrong, ROWS, [contains], batch=True, out=tmp_path / "wrong.jsonl")


def test_responses_without_the_documented_fields_are_typed_errors(server: BatchServer, tmp_path: Path) -> None:
    openai, _, anthropic = models(server)
    for number, (model, name) in enumerate([(openai, ""), (openai, None), (anthropic, 3)]):
        server.fields = {"id": name}
        options: Any = {"batch": True, "out": tmp_path / f"{number}.jsonl"}
        with pytest.raises(ModelReplyError):
            print(name, evaluate_sync(Agent(model, "x"), ROWS, [contains], **options))
        # No batch is stored, so that the next call sends the requests.
        server.fields = {}
        assert not evaluate_sync(Agent(model, "x"), ROWS, [contains], **options).failures
    server.end = "failed"
    for number, errors in enumerate(("x", {"data": "x"}, {"data": ["x", {"message": "late"}]}, None)):
        server.fields = {"errors": errors}
        report = evaluate_sync(Agent(openai, "x"), ROWS, [contains], batch=True, out=tmp_path / f"end{number}.jsonl")
        assert [each.error.startswith("ModelBatchError: ") for each in report.failures] == [True] * 3, errors


def test_large_evaluations_are_several_batches(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIBatches, "max_requests", 2)
    agent = Agent(models(server)[0], "x")
    rows = ROWS + [{"input": f"number {number}", "expected": str(number)} for number in range(4)]
    report = evaluate_sync(agent, rows, [contains], batch=True, out=tmp_path / "requests.jsonl")
    assert report.summary("contains").interval.mean == 1
    assert [len(batch) for batch in server.sent.values()] == [2, 2, 2, 1]
    server.reset()
    monkeypatch.setattr(OpenAIBatches, "max_bytes", 1)
    evaluate_sync(agent, rows, [max_money(1)], batch=True, out=tmp_path / "bytes.jsonl")
    assert [len(batch) for batch in server.sent.values()] == [1] * 7


def test_prompts_that_contain_the_id_of_the_run_are_sent_as_they_are_stored(
    server: BatchServer, tmp_path: Path
) -> None:
    agent = Agent(models(server)[0], layers=Layers("x", input=UserInputPrompt(fence=True)))
    report = evaluate_sync(agent, ROWS, [contains], batch=True, out=tmp_path / "out.jsonl")
    assert not report.failures and "<untrusted-" in next(iter(server.sent.values()))["1-1"]["messages"][-1]["content"]


def test_a_prompt_that_changed_since_it_was_sent_is_an_error(server: BatchServer, tmp_path: Path) -> None:
    numbers = itertools.count()

    class Clock(BasePrompt):
        def format_2_str(self, ctx: PromptContext) -> str:
            return f"It is {next(numbers)}."

    agent = Agent(models(server)[0], Clock())
    report = evaluate_sync(agent, ROWS[:1], [contains], batch=True, out=tmp_path / "out.jsonl")
    assert report.failures[0].error.startswith("ModelBatchError: ")
