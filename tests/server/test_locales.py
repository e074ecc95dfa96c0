"""The language of a run: an option of a run, a field of each endpoint, and stored with the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit import Agent, ScriptedModel, Session, ToolCall, tool
from agentkit.prompts import ContextError, PromptContext, TextPrompt
from tests.runtime.scripts import calling
from tests.server.conftest import RunService
from tests.server.serving_agents import ended, served

TEXTS = {"en": "Be brief.", "de": "Antworte kurz.", "zh-CN": "\u7b80\u77ed"}


def desk(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(*(replies or ("ok",))), TextPrompt(TEXTS), name="desk", **options)


def sent(agent: Agent[Any, Any]) -> str:
    model: Any = agent.chain.model
    return str(model.requests[-1].messages[0].text)


def test_the_locale_of_a_run_selects_the_texts_of_its_templates() -> None:
    agent = desk()
    cases = (
        (None, "Be brief."),
        ("", "Be brief."),
        ("en", "Be brief."),
        ("fr", "Be brief."),
        ("de", "Antworte kurz."),
        ("de-AT", "Antworte kurz."),
        ("de_AT", "Antworte kurz."),
        ("zh-CN", TEXTS["zh-CN"]),
        ("zh", "Be brief."),
    )
    wrong = []
    for locale, expected in cases:
        agent.run_sync("Hi", locale=locale)
        composed = agent.compose("Hi", locale=locale).messages[0].text
        agent.run_sync("Hi", locale=locale, session=Session())
        if not composed == sent(agent) == expected:
            wrong.append((locale, composed, sent(agent)))
    assert wrong == []
    german = PromptContext(user_input="Hi", locale="de")
    assert agent.run_sync(german, locale="de").output == "ok"
    invalid: tuple[tuple[Any, Any], ...] = (("Hi", 3), ("Hi", b"de"), (german, "en"))
    for user_input, tag in invalid:
        with pytest.raises(ContextError):
            agent.run_sync(user_input, locale=tag)


def test_an_agent_that_is_a_tool_has_the_locale_of_the_outer_run() -> None:
    inner = desk()
    outer = Agent(
        ScriptedModel.repeat(ToolCall(name="desk", arguments={"input": "Hi"}), "done"),
        "x",
        tools=[inner.as_tool(name="desk", description="Answers.")],
    )
    outer.run_sync("Hi", locale="de-AT")
    assert sent(inner) == "Antworte kurz."


def test_every_endpoint_accepts_a_locale() -> None:
    agent = desk()
    chat = {"model": "desk", "messages": [{"role": "user", "content": "Hi"}]}
    responses = {"model": "desk", "input": "Hi"}
    run = {"agent": "desk", "input": "Hi"}
    ag_ui = {
        **{"threadId": "t", "runId": "r", "state": None, "tools": [], "context": []},
        "messages": [{"id": "1", "role": "user", "content": "Hi"}],
    }
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", chat),
        ("/v1/responses", responses),
        ("/runs", run),
        ("/agents/desk/ag-ui", ag_ui),
    ]
    wrong: list[Any] = []
    with served(agent) as client:
        for address, body in bodies:
            for locale, expected in (("de-AT", "Antworte kurz."), (None, "Be brief."), ("it", "Be brief.")):
                fields: dict[str, Any] = {"locale": locale}
                if address.endswith("ag-ui"):
                    fields = {"forwardedProps": fields}
                answer = client.post(address, {**body, **fields})
                if address == "/runs":
                    assert ended(client, answer.json()["id"])["locale"] == locale
                if answer.status_code not in (200, 202) or sent(agent) != expected:
                    wrong.append((address, locale, answer.text))
            for invalid in (3, "", "d e", "de\0", "-de", "de-", "x" * 9, ["de"], "\u00e4", "de\n"):
                fields = {"locale": invalid}
                if address.endswith("ag-ui"):
                    fields = {"forwardedProps": fields}
                if client.post(address, {**body, **fields}).status_code not in (400, 422):
                    wrong.append((address, invalid, "accepted"))
    assert wrong == []


def test_the_locale_and_the_tags_are_stored_with_a_run_that_waits(run_service: RunService) -> None:
    @tool(approval="always")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = desk(calling("pay"), "ok", tools=[pay])
    with run_service(agent) as client:
        body = {"agent": "desk", "input": "Hi", "locale": "de", "tags": ["b", "a"], "session": "s"}
        run = client.post("/runs", body).json()
        (call,) = ended(client, run["id"])["waiting"]
        client.post(f"/runs/{run['id']}/decisions", {"decisions": {call["id"]: {"approve": True}}})
        finished = ended(client, run["id"])
        assert (finished["status"], finished["tags"], sent(agent)) == ("finished", ["b", "a"], "Antworte kurz.")
        head = client.get(f"/runs/{run['id']}/journal").text.partition("\n")[0]
        assert json.loads(head)["tags"] == ["b", "a"]
