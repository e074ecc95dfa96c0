"""Play: changed prompts are sent to models with the permission, and requests become curl commands and test cases."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import httpx2

from agentkit import (
    Agent,
    Chain,
    Layers,
    Message,
    ModelSettings,
    OutputSpec,
    Reply,
    ScriptedModel,
    Session,
    Usage,
)
from agentkit.errors import AgentError
from agentkit.evals import EvalRow, evaluate_sync, max_steps
from agentkit.inspector import LocalSource
from agentkit.inspector.curl_command import curl_command
from agentkit.inspector.page_requests import Base, CompositionRequest, PlaySettings
from agentkit.inspector.played_prompt import PlayedPrompt, play_models, played_prompt
from agentkit.models import AnthropicModel, FallbackModel, ModelUnavailable, OpenAIModel, OpenAIResponsesModel, Price
from agentkit.prompts import ContextError, Image, PromptError, Text, TextPrompt
from tests.cases import collected
from tests.inspector.conftest import Serve
from tests.inspector.shop import customer_input, finished, reply, support
from tests.raising import raises
from tests.waiting import LONG

KEY = "sk-secret-key-1234567890"


def changed(**changes: Any) -> CompositionRequest:
    return CompositionRequest(base=Base(run="r"), **changes)


def post(url: str, path: str, **body: Any) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return httpx2.post(f"{url}api/{path}", content=json.dumps(body), headers=headers, timeout=LONG, verify=False)


def test_a_changed_prompt_is_sent_and_the_answer_has_its_cost(serve: Serve, tmp_path: Path) -> None:
    agent = support(Reply(Message("assistant", "Asked."), Usage(1_000_000, 10)), ModelUnavailable("refused"))
    url = serve(LocalSource([agent], runs=[finished()], cases=tmp_path / "cases.jsonl"))
    play = httpx2.get(f"{url}api/overview", timeout=LONG, verify=False).json()["play"]
    assert play == {"allowed": True, "models": [agent.chain.model.name], "cases": "cases.jsonl"}
    body = {"base": {"run": "run-finished"}, "layers": {"system[0]": "Be brief."}, "budget": 900}
    for wrong in ({"temperature": -1}, {"headers": {"x": "y"}}, {"extra": {}}, {"effort": "x"}, 3):
        assert post(url, "ask", **body, settings=wrong).status_code == 422
    answer = post(url, "ask", **body, messages={"intermediate[1]": "unpaid"}).json()
    assert (answer["text"], answer["usage"]["money"], answer["finish"]) == ("Asked.", 3.00015, "stop")
    sent = agent.chain.model.requests[-1].messages
    assert sent[0].text.startswith("Be brief.") and sent[-1].text != "unpaid" and sent[-2].text == "unpaid"
    failed = post(url, "ask", **body)
    assert failed.status_code == 422 and "refused" in failed.text


def test_test_cases_are_rows_of_a_file_that_the_operator_names(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text('{"input": "old", "additional_kwargs": {"customer": "Ada"}}')  # without a line break at its end
    session = Session("s")
    agent = support(reply("One."), reply("Two."))
    for text in ("First by Ada", "Second"):
        last = agent.run_sync({"input": text, "additional_kwargs": {"customer": "Ada"}}, session=session)
    runs = [finished(), last.journal]
    source = LocalSource(
        [agent], runs=runs, sessions=[session], cases=file, redact=lambda text: text.replace("Ada", "X")
    )
    url = serve(source)
    new = {"agent": agent.name}
    cases: list[dict[str, Any]] = [
        {
            "base": new,
            "input": 'a\n"b" \u2028',
            "kwargs": {"customer": "Ada"},
            "expected": "x\x85",
            "tags": ["é", "\n"],
        },
        {"base": {"run": last.run_id}, "expected": "Ada"},
        {"base": {"session": "s", "turn": 0}, "kwargs": {"customer": "Eve"}, "input": "", "expected": ""},
        {"base": {"run": "run-finished"}, "expected": "", "messages": {"intermediate[1]": "unpaid"}},
    ]
    answers = [post(url, "case", **case).json() for case in cases]
    assert [answer["file"] for answer in answers] == ["cases.jsonl"] * 4
    _, *lines = file.read_text("utf-8").splitlines()
    assert lines == [answer["line"] for answer in answers]
    rows = [EvalRow.model_validate_json(line) for line in lines]
    assert [row.expected for row in rows] == ["x\x85", "X", "", ""] and rows[0].tags == ("é", "\n")
    assert [row.additional_kwargs["customer"] for row in rows] == ["X", "X", "Eve", "X Lovelace"]
    assert [message.text for message in rows[1].history] == ["First by X", "One."] and rows[1].text == "Second"
    report = evaluate_sync(support(*[reply("ok")] * 5), file, [max_steps(1)])
    assert [outcome.error for outcome in report.outcomes] == [""] * 5
    wrong: list[dict[str, Any]] = [{"base": new}, {**cases[0], "input": 3}, {**cases[0], "file": "/etc/x"}]
    assert [post(url, "case", **case).status_code for case in wrong] == [422] * 3
    downloaded = post(serve(LocalSource([agent])), "case", **cases[0]).json()
    assert downloaded["file"] is None and "Ada" in downloaded["line"]
    assert post(serve(LocalSource([agent], cases=tmp_path)), "case", **cases[0]).status_code == 422


def test_messages_models_and_settings_are_changed_as_a_run_would_send_them() -> None:
    session = Session("s")
    session.append(
        Message("user", "One"), Message("assistant", "Two"), Message("user", [Text("x"), Image("http://i/i.png")])
    )
    small = OpenAIModel("small", base_url="http://localhost:1/v1", api_key=KEY)
    both = FallbackModel(small, OpenAIModel("large", base_url="http://localhost:2/v1", api_key=KEY))
    agent = Agent(
        Chain(
            both,
            Layers("Be brief.", before_input=TextPrompt("{{ locale }}")),
            output=OutputSpec(list[int], mode="prompted"),
        )
    )
    models = play_models([agent, support()])
    assert set(models) == {both.name, "small", "large", support().chain.model.name}
    ctx = agent.context("Hi", session)
    model, composition = played_prompt(
        agent,
        ctx,
        changed(
            messages={"conversation[1]": "2", "conversation[0]": ""},
            model="large",
            settings=PlaySettings(temperature=0, max_tokens=9),
            layers={"system[0]": "Be long.", "before_input[0]": ""},
            budget=3_000,
        ),
        models,
    )
    assert [message.text for message in composition.messages[1:3]] == ["", "2"]
    assert composition.messages[0].text.startswith("Be long.\n\n") and "JSON" in composition.messages[0].text
    assert isinstance(model, OpenAIModel) and model.settings == ModelSettings(temperature=0, max_tokens=9)
    assert models["large"] is not model and composition.budget is not None
    same = played_prompt(agent, ctx, changed(model=both.name, settings=PlaySettings()), models)
    assert same.model is both and same.composition.messages == agent.chain.compose(ctx).messages
    with raises(PromptError, name="model", value="http://evil/v1#x"):
        played_prompt(agent, ctx, changed(model="http://evil/v1#x"), models)
    wrong = ["conversation[2]", "conversation[9]", "intermediate[0]", "conversation[-1]", "system[0]", "", "x" * 5000]
    try:
        played_prompt(agent, ctx, changed(messages=dict.fromkeys(wrong, "x")), models)
    except ContextError as error:
        assert [place for place, _ in error.problems] == [name[:80] for name in wrong]
    else:
        raise AssertionError("accepted")


HOSTILE = ("'; rm -rf ~ #", "$(id) `id` !! \\", "a\nb\r\x1b[31m\u202e", '"quoted" %s', KEY)


def test_a_curl_command_is_the_request_without_the_key_and_safe_to_paste() -> None:
    settings = ModelSettings(temperature=0.5, headers={"x-team": "secret-team", "x$`id`": "v"}, extra={"api_key": KEY})
    address = f"http://user:{KEY}@localhost:1/v1/"
    cases: list[tuple[Any, str, str]] = [
        (OpenAIModel("gpt-5-mini", api_key=KEY), "https://api.openai.com/v1/chat/completions", "OPENAI_API_KEY"),
        (
            OpenAIModel("m", api_key=KEY, base_url=address, settings=settings),
            "http://localhost:1/v1/chat/completions",
            "OPENAI_API_KEY",
        ),
        (OpenAIResponsesModel("gpt-5", api_key=KEY), "https://api.openai.com/v1/responses", "OPENAI_API_KEY"),
        (AnthropicModel("claude-opus-5", api_key=KEY), "https://api.anthropic.com/v1/messages", "ANTHROPIC_API_KEY"),
    ]
    failures: list[str] = []
    for model, url, key in cases:
        with collected(failures, model, url):
            composition = Agent(model, "Be careful.").compose("\n".join(HOSTILE))
            command = curl_command(PlayedPrompt(FallbackModel(model, ScriptedModel([])), composition))
            assert command.isascii() and "\x1b" not in command and KEY not in command and "secret-team" not in command
            words = shlex.split(command.replace("\\\n", ""))
            assert words[:2] == ["curl", url] and words[-2] == "--data-raw"
            sent = json.loads(words[-1])
            assert json.dumps(sent) == json.dumps(model.request_body(composition)).replace(KEY, "***")
            headers = [word for word in words if ": " in word and not word.startswith("{")]
            assert "content-type: application/json" in headers and any(word.endswith(f"${key}") for word in headers)
            if "localhost" in url:
                assert headers[-2:] == ["x-team: $X_TEAM", "x$`id`: $X__ID_"] and sent["temperature"] == 0.5
    assert failures == []
    with raises(AgentError):
        curl_command(PlayedPrompt(ScriptedModel([]), composition))


def test_a_prompt_is_priced_by_the_model_that_answers(serve: Serve) -> None:
    cheap = ScriptedModel([reply("Cheap.", tokens=100)], name="cheap", price=Price(1, 1))
    url = serve(LocalSource([support(), Agent(cheap, "x", name="other")], runs=[finished()]))
    answer = post(url, "ask", base={"run": "run-finished"}, model="cheap").json()
    assert (answer["text"], answer["usage"]["money"]) == ("Cheap.", 0.00014)
    assert cheap.requests[-1].context.user_input == customer_input("Can I still return my espresso machine?")
