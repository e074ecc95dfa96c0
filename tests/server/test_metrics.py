"""Metrics of a server for operators, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2 as httpx

from agentkit import Agent, Message, Reply, RunCaller, ScriptedModel, tool
from agentkit.models import ModelRateLimited, Usage
from agentkit.server import Access, add_token
from tests.runtime.scripts import calling
from tests.server.conftest import RunService
from tests.server.serving_agents import Client, ended, served
from tests.waiting import until

DEPLOYMENT = Path(__file__).parent.parent.parent / "examples" / "deployment"
SAMPLE = re.compile(r'(agentkit_[a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*",?)*)\})? (\S+)')


def read(answer: httpx.Response) -> dict[tuple[str, str], float]:
    """Return the samples of `/metrics`, each by its name and its labels."""
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            samples[match[1], match[2] or ""] = float(match[3])
    return samples


@tool(approval="always")
def pay() -> str:
    """Pay."""
    return "paid"


def ask(client: Client, agent: str) -> dict[str, Any]:
    return ended(client, client.post("/runs", {"agent": agent, "input": "Hi"}).json()["id"])


def test_metrics_count_runs_tokens_money_errors_and_waits(run_service: RunService) -> None:
    usage = Usage(100, 20, 40, money=0.5, reasoning_tokens=5)
    script: list[Any] = [
        Reply(Message("assistant", "ok"), usage),
        ModelRateLimited("slow down"),
        calling("pay"),
        "done",
    ]
    agent = Agent(ScriptedModel(script), "x", tools=[pay], name="desk")
    with run_service(agent) as client:
        assert ask(client, "desk")["status"] == "finished"
        assert ask(client, "desk")["status"] == "failed"
        waiting = ask(client, "desk")
        # Durable runs are counted a moment after their end.
        until(lambda: read(client.get("/metrics")).get(("agentkit_runs_total", 'agent="desk",state="failed"')))
        samples = read(client.get("/metrics"))
        for name, labels, value in (
            ("runs_total", 'agent="desk",state="finished"', 1),
            ("run_seconds_count", 'agent="desk"', 2),
            ("run_seconds_bucket", 'agent="desk",le="+Inf"', 2),
            ("run_errors_total", 'agent="desk",error="ModelRateLimited"', 1),
            ("model_errors_total", 'agent="desk",error="ModelRateLimited"', 1),
            ("tokens_total", 'agent="desk",kind="input"', 100),
            ("tokens_total", 'agent="desk",kind="cached"', 40),
            ("tokens_total", 'agent="desk",kind="output"', 20),
            ("money_total", 'agent="desk"', 0.5),
            ("runs", 'agent="desk",state="waiting"', 1),
            ("runs", 'agent="desk",state="queued"', 0),
            ("waiting_calls", "", 1),
            ("workers", 'state="silent"', 0),
            ("store_up", "", 1),
        ):
            assert samples[f"agentkit_{name}", labels] == value, (name, labels, samples)
        assert samples["agentkit_oldest_run_seconds", 'state="waiting"'] >= 0
        client.post(f"/runs/{waiting['id']}/cancel")
        until(lambda: read(client.get("/metrics")).get(("agentkit_runs_total", 'agent="desk",state="cancelled"')))
        assert read(client.get("/metrics"))["agentkit_waiting_calls", ""] == 0


def test_clients_and_code_cannot_create_an_unlimited_number_of_time_series(tmp_path: Path) -> None:
    def fails(caller: RunCaller) -> None:
        raise type(caller.user, (Exception,), {})("x")

    broken = Agent(ScriptedModel.repeat("ok"), "x", name="broken").with_deps(fails)
    path = tmp_path / "access.yaml"
    token = add_token(path, "web", "acme", scopes=("run", "read", "metrics"))
    with served(broken, access=Access(path)) as client:
        for number in range(5):
            message = {"role": "user", "content": "Hi"}
            body = {"model": "broken", "messages": [message], "user": f"u{number}"}
            assert client.post("/v1/chat/completions", body, token).status_code == 500
            client.post(f"/nowhere/{number}", {}, token)
        for number in range(150):
            client.server.limits.measures.count_error("broken", f"Error{number}")
        samples = read(client.get("/metrics", token))
        assert samples["agentkit_run_errors_total", 'agent="broken",error="DepsError"'] == 5
        assert samples["agentkit_run_errors_total", 'agent="broken",error="other"'] > 40
        names = Counter(name for name, _ in samples)
        assert names["agentkit_run_errors_total"] <= 102 and "u1" not in str(samples) and "nowhere" not in str(samples)


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOYMENT / "grafana.json").read_text("utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    with served(Agent(ScriptedModel(["ok"]), "x", name="desk")) as client:
        ask(client, "desk")
        text = client.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    shown = set()
    for expression in expressions:
        for name in re.findall(r"agentkit_[a-z_]+", expression):
            metric = name.removesuffix("_bucket")
            assert metric in kinds, expression
            shown.add(metric)
            # A counter is only readable as a rate, and a histogram by its buckets.
            assert (kinds[metric] == "counter") == (f"rate({name}" in expression and name == metric), expression
            assert (kinds[metric] == "histogram") == name.endswith("_bucket"), expression
    assert shown == set(kinds), set(kinds) - shown
