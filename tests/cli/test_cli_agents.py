"""Commands that take an agent: run, chat, compose, schema, sessions, export, new, token and serve."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest
import typer

from agentkit import Runs
from agentkit.agent_files import load_agent
from agentkit.cli.app import app
from agentkit.server import Access
from tests.cases import collected
from tests.cli.conftest import MAIN, Run, commands
from tests.waiting import LONG

SHOP = """\
from agentkit import Agent, Layers, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.prompts import AdditionalInfoPrompt, Template
from tests.waiting import LONG

@tool(approval="always")
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

asks = Message("assistant", tool_calls=(ToolCall("c1", "pay", '{"amount": 3}'),))
said = Reply(Message("assistant", "Hello\\x1b[31m."), Usage(7, 2))
hello = Agent(ScriptedModel.repeat(said), "Be brief.", name="hello")
broken = Agent(ScriptedModel.repeat(lambda sent: 1 / 0), name="broken")
cashier = Agent(ScriptedModel([asks, "Done."]), tools=[pay], name="cashier")
needs = {"type": "object", "properties": {"root": {"type": "string"}}, "required": ["root"]}
kwargs = Agent(
    ScriptedModel.repeat("ok"),
    layers=Layers(before_input=AdditionalInfoPrompt(Template("root {{ root }}", params_schema=needs))),
    name="kwargs",
)
"""
SHELF = """
from agentkit import ToolContext

class Shelf:
    size = 3

def look(context: ToolContext[Shelf]) -> int:
    "Look."
    return context.deps.size
"""
TENANT_TILL = """
from agentkit import ToolContext, tool

@tool(approval="always")
def pay(amount: int, context: ToolContext) -> str:
    "Pay."
    return f"{amount} of {context.tenant} for {context.user}"
"""
ASKS = """
from agentkit import tool
from agentkit.guards import Ask, guard

@tool(approval="always")
def pay(amount: int) -> str:
    return f"paid {amount}"

@guard("output")
def check(text):
    return Ask("a promise") if "paid" in text else None

@guard("tool_result")
def read(result):
    return Ask("strange")
"""
TILL = """
from agentkit import Agent, Message, ScriptedModel, ToolCall, tool


@tool(approval="always")
def pay(amount: int) -> str:
    \"\"\"Pay.\"\"\"
    return f"paid {amount}"


def reply(sent):
    if len(sent.intermediate):
        return Message("assistant", sent.intermediate[-1].text)
    return Message("assistant", tool_calls=(ToolCall("c", "pay", '{"amount": 30}'),))


till = Agent(ScriptedModel.repeat(reply), tools=[pay], name="till")
"""


@pytest.fixture
def shop(folder: Path) -> str:
    (folder / "shop.py").write_text(SHOP)
    return "./shop.py"


def test_run_prints_the_answer_without_terminal_control_characters(run: Run, shop: str) -> None:
    done = run("run", "Hi", "--agent", f"{shop}:hello")
    assert (done.exit_code, done.stdout) == (0, "Hello\ufffd[31m.\n")
    done = run("run", "-", "--agent", f"{shop}:hello", "--json", stdin="Hi")
    found = json.loads(done.stdout)
    assert (found["status"], found["output"], found["usage"]["input_tokens"]) == ("finished", "Hello\x1b[31m.", 7)
    assert "\x1b" not in done.stdout


def test_each_user_has_a_separate_memory_and_separate_conversations(run: Run, shop: str) -> None:
    assert run("run", "I live in Oslo, by the harbour.", "--user", "ada", "--session", "monday").exit_code == 0
    asked = "Where do I live: by which harbour?"
    assert "Oslo" in run("run", asked, "--user", "ada").stdout
    assert "Oslo" in run("compose", asked, "--user", "ada", "--json").stdout
    assert "Oslo" in run("chat", "--once", asked, "--user", "ada", "--session", "friday").stdout
    for user in (["--user", "bob"], []):
        assert "Oslo" not in run("run", asked, *user).stdout + run("compose", asked, "--json", *user).stdout
    done = run("run", "Hi", "--agent", f"{shop}:hello", "--user", "ada")
    assert done.exit_code == 0  # without a memory, only tools read the user


def test_a_truncated_prompt_is_also_redacted(run: Run, folder: Path) -> None:
    (folder / "masked.py").write_text(
        "from agentkit import Agent, Chain, ScriptedModel\n"
        "def mask(text):\n    return text.replace('4711', '****')\n"
        "chain = Chain(ScriptedModel([]), 'Be brief.', redact=lambda sent: sent.mapped(mask))\n"
        "agent = Agent(chain)\n"
    )
    for budget in ([], ["--budget", "500"]):
        done = run("compose", "My code is 4711.", "--agent", "./masked.py:agent", "--text", *budget)
        assert done.exit_code == 0 and "My code is ****." in done.stdout


def test_a_resumed_run_refuses_another_user(run: Run, shop: str, folder: Path) -> None:
    assert run("run", "Hi", "--agent", f"{shop}:hello", "--journal", "run.jsonl").exit_code == 0
    done = run("run", "--resume", "run.jsonl", "--agent", f"{shop}:hello", "--user", "ada")
    assert done.exit_code == 2 and "omit --user" in done.stderr


def test_a_call_that_needs_a_person_is_another_exit_code(run: Run, shop: str) -> None:
    done = run("run", "Pay.", "--agent", f"{shop}:cashier", "--json")
    assert (done.exit_code, json.loads(done.stdout)["waiting"][0]["name"]) == (3, "pay")
    assert run("run", "Pay.", "--agent", f"{shop}:cashier", "--yes").exit_code in (0, 1)  # its script may be at the end


def test_a_waiting_run_names_its_calls_and_resumes_from_its_journal(run: Run, folder: Path) -> None:
    (folder / "till.py").write_text(TILL)
    ask = ("run", "Pay.", "--agent", "./till.py:till", "--journal", "pay run.jsonl", "--session", "s")
    done = run(*ask)
    assert done.exit_code == 3 and "  amount: 30\n" in done.stderr
    assert "agentkit run --resume 'pay run.jsonl' --yes" in done.stderr
    done = run(*ask)
    assert done.exit_code == 1 and "agentkit run --resume" in done.stderr
    done = run("run", "--resume", "pay run.jsonl", "--agent", "./till.py:till")
    assert done.exit_code == 3 and "  amount: 30\n" in done.stderr
    done = run("run", "--resume", "pay run.jsonl", "--agent", "./till.py:till", "--yes", "--json")
    assert json.loads(done.stdout)["output"] == "paid 30", done.stderr
    for wrong in (
        ("Hi", "--resume", "x"),
        (),
        ("--resume", "x", "--kwarg", "a=1"),
        ("--resume", "x", "--journal", "y"),
    ):
        assert run("run", *wrong).exit_code == 2
    assert run("run", "--resume", "nothing.jsonl").exit_code == 1


def test_each_approval_of_yes_has_a_line(run: Run, folder: Path) -> None:
    (folder / "asks.py").write_text(ASKS)
    (folder / "a.yaml").write_text(
        "name: a\nmodel: offline\ntools: [./asks.py:pay]\nguards: [./asks.py:check, ./asks.py:read]\n"
    )
    command = ("run", "Use pay with amount=3.", "--agent", "a.yaml", "--yes")
    notes = run(*command).stderr.splitlines()
    assert [line for line in notes if line.startswith(("approved", "calls"))] == [
        "approved pay (offline_1)",
        'calls pay {"amount": 3}',
        "approved read (tool_result_offline_1_read)",
        "approved check (output_2_check)",
    ]
    assert "approved" not in run(*command, "--json").stderr


def test_kwargs_are_checked_and_passed(run: Run, shop: str) -> None:
    done = run("run", "Hi", "--agent", f"{shop}:kwargs")
    assert done.exit_code == 1 and "'root'" in done.stderr and "Traceback" not in done.stderr
    assert run("run", "Hi", "--agent", f"{shop}:kwargs", "--kwarg", "root=here").exit_code == 0
    assert "root here" in run("compose", "Hi", "--agent", f"{shop}:kwargs", "-k", "root=here", "--text").stdout
    for wrong in ("root", "=here", " =here"):
        done = run("run", "Hi", "--agent", f"{shop}:kwargs", "--kwarg", "root=here", "--kwarg", wrong)
        assert done.exit_code == 2 and "expected NAME=VALUE" in done.stderr
    asked, none = run("schema", "--agent", f"{shop}:kwargs"), run("schema", "--agent", f"{shop}:hello")
    assert (asked.stdout, asked.stderr) == ("root: string, required, for before_input[0]\n", "")
    assert (none.stdout, none.stderr) == ("", "the prompts of the agent require no additional kwargs\n")
    assert json.loads(run("schema", "--agent", f"{shop}:kwargs", "--json").stdout)["required"] == ["root"]


def test_a_chat_undoes_forks_counts_and_denies_calls_without_approval(run: Run, shop: str, folder: Path) -> None:
    lines = ["Hi", "Again", "/undo", "/cost", "/fork other", "Here", "/why system", "/why", "/fork", "/quit"]
    done = run("chat", "--agent", f"{shop}:hello", "--session", "s", stdin="\n".join(lines))
    assert done.exit_code == 0, done.stderr
    assert "removed 2 messages" in done.stderr and "continues in 'other'" in done.stderr
    assert "2 turns: 14 tokens in (0 cached), 4 out; unknown price" in done.stdout
    assert "Be brief." in done.stdout or "system" in done.stdout
    listed = json.loads(run("sessions", "list", "--json", "--agent", f"{shop}:hello").stdout)
    assert [(one["name"], one["messages"]) for one in listed] == [("other", 4), ("s", 2)]
    taken = run("chat", "--agent", f"{shop}:hello", "--session", "s", stdin="/fork other\n")
    assert "the conversation 'other' already exists" in taken.stderr
    denied = run("chat", "--agent", f"{shop}:cashier", "--session", "c", "--once", "Pay.")
    assert denied.exit_code == 0 and "is denied" in denied.stderr and denied.stdout == "Done.\n"


def test_conversations_from_before_the_agent_had_a_memory_are_reported_as_separate(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("new", "mine")
    monkeypatch.chdir(folder / "mine")
    file = Path("agent.yaml")
    chat = ("chat", "--agent", str(file), "--session", "s", "--once", "Hi.")
    assert run(*chat).exit_code == 0 and "apart" not in run(*chat).stderr
    file.write_text(file.read_text() + "memory: true\n")
    listed = run("sessions", "list", "--agent", str(file))
    assert (
        "not listed, because stored before mine had a memory: s; " in listed.stderr and "--agent" not in listed.stderr
    )
    assert "stays apart: this conversation is a new one" in run(*chat).stderr
    assert "stays apart" not in run(*chat).stderr  # the conversation exists now
    assert run("sessions", "list", "--agent", str(file)).stdout.split()[3:5] == ["s", "4"]


def test_sessions_are_listed_shown_exported_and_imported(run: Run, shop: str, folder: Path) -> None:
    run("chat", "--agent", f"{shop}:hello", "--session", "s", stdin="Hi\nAgain\n")
    own = ("--agent", f"{shop}:hello")
    assert run("sessions", "list", *own).stdout.split()[3:5] == ["s", "4"]
    assert run("sessions", "show", "s", *own).stdout.startswith("user: Hi\nassistant: Hello\ufffd[31m.\n")
    assert [one["seq"] for one in json.loads(run("sessions", "show", "s", "--json", *own).stdout)] == [1, 2, 3, 4]
    missing = run("sessions", "show", "none", *own)
    assert missing.exit_code == 1 and "unknown conversation 'none'" in missing.stderr
    run("sessions", "export", "--output", "out.jsonl", *own)
    assert stat.S_IMODE((folder / "out.jsonl").stat().st_mode) == 0o600
    assert json.loads((folder / "out.jsonl").read_text())["messages"][0] == {"role": "user", "content": "Hi"}
    other = ("--home", "other", "--json")
    for added in (4, 0):
        done = run("sessions", "import", "out.jsonl", *other)
        assert json.loads(done.stdout) == {"lines": 1, "added": added}
    assert [one["name"] for one in json.loads(run("sessions", "list", *other).stdout)] == ["s"]
    (folder / "out.jsonl").write_text("{}")
    wrong = run("sessions", "import", "out.jsonl", *other)
    assert wrong.exit_code == 1 and "line 1: session: expected text" in wrong.stderr
    rows = [json.loads(line) for line in run("export", "--agent", f"{shop}:hello").stdout.splitlines()]
    assert [[one["role"] for one in row["messages"]] for row in rows] == [
        ["system", "user", "assistant"],
        ["system", "user", "assistant", "user", "assistant"],
    ]


def test_rows_for_fine_tuning_contain_recalled_texts_and_nothing_from_later(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text("name: owls\nmodel: offline\ninstructions: Be brief.\nmemory: {home: own}\n")
    own = ("--agent", "agent.yaml", "--user", "ada")
    assert run("ingest", "docs", "--agent", "agent.yaml").exit_code == 0
    asked = ("When do owls hunt?", "I live in Bern.", "Where do I live?")
    for number, text in enumerate(asked):
        assert run("chat", "--once", text, "--session", f"s{number}", *own).exit_code == 0
    assert run("chat", "--once", "I live in Oslo now.", "--session", "later", *own).exit_code == 0
    lines = run("export", "--chat-template", "qwen2d5", *own).stdout.splitlines()
    rows = {row["messages"][-2]["content"]: row for row in map(json.loads, lines)}
    sent = {text: next(whole for whole in rows if whole.endswith(text)) for text in asked}
    assert "owls.md#" in sent[asked[0]] and "night" in sent[asked[0]]
    assert "I live in Bern." in sent[asked[2]] and "Oslo" not in sent[asked[2]]
    assert all(whole in row["text"] for whole, row in rows.items())
    others = run("export", "--agent", "agent.yaml")
    assert others.stdout == "" and "conversations of users (ada); --user NAME" in others.stderr


def test_new_does_not_write_into_a_folder_that_contains_files(run: Run, folder: Path) -> None:
    """The tutorial, which tests/test_docs.py runs, shows that the written files work."""
    done = run("new", "order-desk")
    assert done.exit_code == 0, done.stderr
    (folder / "order-desk" / "agent.yaml").write_text("mine")
    again = run("new", "order-desk")
    assert again.exit_code == 1 and "is not an empty folder" in again.stderr
    assert (folder / "order-desk" / "agent.yaml").read_text() == "mine"


def test_an_agent_file_that_is_broken_is_reported_line_by_line(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text("model: offline\ntoolz: []\nlimits: {steps: 0}\n")
    for command in (("run", "Hi"), ("compose", "Hi"), ("chat", "--once", "Hi"), ("schema",)):
        done = run(*command, "--agent", "a.yaml")
        assert (done.exit_code, "Traceback" in done.stderr) == (1, False)
        assert "a.yaml, line 2: toolz: unknown key" in done.stderr and "a.yaml, line 3: limits.steps" in done.stderr


def test_an_error_about_a_tool_without_a_module_names_the_expected_form(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text("name: a\nmodel: offline\ntools: [open_ticket]\n")
    done = run("schema", "--agent", "agent.yaml")
    assert "expected MODULE:NAME or FILE:NAME, such as ./tools.py:add" in done.stderr


def test_a_token_is_printed_once_and_is_valid(run: Run, folder: Path) -> None:
    done = run("token", "ci", "--tenant", "acme", "--scope", "read")
    caller = Access(folder / ".agentkit" / "access.yaml").caller(f"Bearer {done.stdout.strip()}")
    assert (caller.tenant, caller.permissions) == ("acme", {"read"})
    assert run("token", "ci").exit_code == 1
    assert run("token", "x", "--scope", "everything").exit_code == 2


def test_serve_answers_logs_and_stops_at_a_signal(run: Run, shop: str, folder: Path) -> None:
    agents = ["--agent", f"{shop}:hello", "--agent", f"{shop}:broken"]
    command = [sys.executable, "-c", MAIN, "serve", *agents, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["agents"] == ["hello", "broken"]
        page = httpx.get(ready["url"], follow_redirects=True, timeout=LONG)  # the page for a person is the inspector
        assert page.status_code == 200 and str(page.url) == ready["inspector"] and "<html" in page.text
        assert httpx.get(ready["url"] + "/readyz", timeout=LONG).json()["status"] == "ok"
        body = {"model": "hello", "messages": [{"role": "user", "content": "Hi"}]}
        chat = partial(httpx.post, ready["url"] + "/v1/chat/completions", timeout=LONG)
        done = chat(json=body).json()
        assert done["choices"][0]["message"]["content"].startswith("Hello")
        assert chat(json={**body, "model": "broken"}).status_code == 500
        second = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=LONG, check=False)
        assert second.returncode == 1 and "another server" in second.stderr
    finally:
        process.send_signal(signal.SIGINT if os.name == "nt" else signal.SIGTERM)
        _, log = process.communicate(timeout=LONG)
    assert process.returncode in (0, -signal.SIGTERM)
    assert "ERROR a request failed" in log and "ZeroDivisionError" in log
    refused = run("serve", "--agent", f"{shop}:hello", "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == 1 and "other machines can reach" in refused.stderr


COMMANDS = dict(commands(typer.main.get_command(app)))
NO_ANSWER = {("mcp",)}
"""Commands whose stdout is a protocol."""


def test_every_command_has_json_and_a_valid_example() -> None:
    failures: list[str] = []
    for path in COMMANDS:
        with collected(failures, path):
            command = COMMANDS[path]
            options = {name for parameter in command.params for name in parameter.opts}
            assert path in NO_ANSWER or "--json" in options
            example = re.search(r"Example: agentkit (.*?)(?: && |$)", command.help or "", re.MULTILINE)
            assert example is not None
            words = shlex.split(example[1])
            assert tuple(words[: len(path)]) == path
            context = command.make_context(" ".join(path), words[len(path) :], resilient_parsing=False)
            assert context.command is command
    assert failures == []


def test_the_documents_and_conversations_of_an_agent_file(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text("name: owls\nmodel: offline\nmemory: {home: own}\n")
    agent = ("--agent", "agent.yaml")
    assert run("ingest", "docs", *agent).exit_code == 0
    assert not (folder / ".agentkit").exists() and (folder / "own").exists()
    found = json.loads(run("recall", "barn owl", "--json", *agent).stdout)
    assert found["documents"][0]["source"].endswith("owls.md")
    done = run("chat", "--once", "When do owls hunt?", "--session", "s", "--json", *agent)
    answer = json.loads(done.stdout)
    assert (answer["session"], answer["status"]) == ("s", "finished") and "night" in answer["output"]
    assert [one["name"] for one in json.loads(run("sessions", "list", "--json", *agent).stdout)] == ["s"]
    assert run("sessions", "list").exit_code == 1
    assert "When do owls hunt?" in run("sessions", "show", "s", *agent).stdout
    written = run("export", "--output", "rows.jsonl", "--json", *agent)
    assert json.loads(written.stdout) == {"lines": 1, "file": "rows.jsonl"}
    (folder / "none.yaml").write_text("name: none\nmodel: offline\n")
    refused = run("recall", "owl", "--agent", "none.yaml")
    assert refused.exit_code == 1 and "the agent none has no memory" in refused.stderr


def test_commands_act_for_a_tenant(run: Run, folder: Path) -> None:
    (folder / "till.py").write_text(TENANT_TILL)
    (folder / "a.yaml").write_text("name: till\nmodel: offline\nmemory: true\ntools: [./till.py:pay]\n")
    (folder / "cases.yaml").write_text(
        "- {input: 'Use pay with amount=3.', user: ada, expected: '3 of acme for ada'}\n"
        "- {input: 'When do owls hunt?', expected: night}\n"
    )
    agent, tenant = ("--agent", "a.yaml"), ("--tenant", "acme")
    assert run("ingest", "docs", *agent, *tenant).exit_code == 0
    question = "When do owls hunt?"
    for options, is_found in ((tenant, True), ((), False), (("--tenant", "bolt"), False)):
        for command in (("run", question), ("chat", "--once", question), ("compose", question, "--text")):
            done = run(*command, *agent, *options)
            assert done.exit_code == 0 and ("at night" in done.stdout) is is_found, (command, options, done.stdout)
    paid = run("run", "Use pay with amount=3.", *agent, *tenant, "--user", "ada", "--yes")
    assert paid.stdout.startswith("3 of acme for ada")
    waiting = run("run", "Use pay with amount=4.", *agent, *tenant, "--session", "s", "--journal", "j.jsonl")
    assert waiting.exit_code == 3
    assert run("run", "--resume", "j.jsonl", "--yes", *agent, *tenant).exit_code == 2
    assert run("run", "--resume", "j.jsonl", "--yes", *agent).stdout.startswith("4 of acme for local")
    rows = [json.loads(line) for line in run("export", *agent, *tenant, "--session", "s").stdout.splitlines()]
    assert "4 of acme" in str(rows[-1]["messages"])
    evaluation = ("eval", *agent, "--rows", "cases.yaml", "--score", "contains", "--json")
    means = {}
    for options in ((*tenant, "--yes"), tenant, ("--yes",)):
        means[options] = json.loads(run(*evaluation, *options).stdout)["scores"]["contains"]["mean"]
    assert list(means.values()) == [1, 0.5, 0]
    # An agent without a memory acts for the tenant too.
    (folder / "b.yaml").write_text("name: till\nmodel: offline\ntools: [./till.py:pay]\n")
    owners = {"acme for local": tenant, "local for local": (), "local for ada": ("--user", "ada")}
    for owner, names in owners.items():
        paid = run("run", "Use pay with amount=5.", "--agent", "b.yaml", *names, "--yes")
        assert paid.stdout.startswith(f"5 of {owner}"), names
    stored = run("sessions", "list", "--agent", "b.yaml")
    assert "user local" in stored.stderr


def test_python_files_of_an_agent_that_import_each_other(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (folder / "inner").mkdir()
    for place, name in ((folder, "shelf_a"), (folder / "inner", "shelf_b")):
        (place / f"{name}.py").write_text(SHELF)
        (place / f"of_{name}.py").write_text(f"from {name} import Shelf\n\ndef opened(caller):\n    return Shelf()\n")
    cases = (
        (folder / "a.yaml", "shelf_a:look", "of_shelf_a:opened", 0, "3"),
        (folder / "b.yaml", "./shelf_a.py:look", "of_shelf_a:opened", 1, "`shelf_a:NAME`"),
        (folder / "inner" / "c.yaml", "./shelf_b.py:look", "./of_shelf_b.py:opened", 1, "`shelf_b:NAME`"),
    )
    for file, tool, deps, code, text in cases:
        file.write_text(f"model: offline\ntools: [{tool!r}]\ndeps: {deps!r}\n")
        done = run("run", "Use look.", "--agent", str(file.relative_to(folder)))
        assert done.exit_code == code and text in done.stdout + done.stderr, (file, done.stdout, done.stderr)
        assert "see the log" not in done.stderr  # printed below


def test_the_variable_of_the_agent_is_a_default(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = run("worker", "gone.py", "--agent", "a.yaml", "--url", "sqlite://")
    assert both.exit_code == 2 and "expected MODULE, or --agent" in both.stderr
    monkeypatch.setenv("AGENTKIT_AGENT", "missing.yaml")
    replaced = run("worker", "gone.py")
    assert replaced.exit_code == 1 and "gone.py" in replaced.stderr and "missing.yaml" not in replaced.stderr
    shown = run("inspect", "--no-open")
    assert shown.exit_code == 1 and "missing.yaml" in shown.stderr


async def test_a_worker_does_the_runs_of_agent_files_for_the_tenant_of_each_run(run: Run, folder: Path) -> None:
    assert run("worker").exit_code == run("worker", "--agent", "a.yaml").exit_code == 2
    (folder / "a.yaml").write_text("name: hello\nmodel: offline\nmemory: true\n")
    url = f"sqlite:///{folder / 'runs.db'}"
    handles = {}
    for tenant in ("acme", "bolt"):
        loaded = load_agent(folder / "a.yaml")
        assert loaded.memory is not None
        memory = loaded.memory.within(tenant)
        memory.documents.add(f"The owls of {tenant} hunt at night.", source="owls.md")
        agent = loaded.agent.with_changes(memory=memory)
        Runs(url).add(agent)
        handles[tenant] = await agent.start("When do the owls hunt?", user="ada")
        loaded.close()
    variables = {**os.environ, "AGENTKIT_AGENT": "a.yaml", "AGENTKIT_RUNS_URL": url}
    command = [sys.executable, "-c", MAIN, "worker", "--poll", "0.25", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=variables)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["agents"][0][0] == "hello"
        for tenant, handle in handles.items():
            assert f"owls of {tenant}" in (await handle.result(timeout=LONG)).output
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONG)
    assert process.returncode == 0
