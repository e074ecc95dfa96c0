"""Workers are processes: killed in the middle of a run, stopped in order, stopped for longer than their lease."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from agentkit import Agent, Message, Paused, Runs, ScriptedModel, ToolCall, tool
from agentkit.cli.app import app
from agentkit.durable import RunFailed
from tests.paths import ROOT
from tests.waiting import LONG

pytestmark = pytest.mark.untraced
AGENTS = str(Path(__file__).parent / "durable_agents.py")


class Site:
    """A database, a folder, and processes that work there."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.home = url, home
        self.runs = Runs(url)
        self._processes: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        own = {"DURABLE_TEST_URL": self.url, "DURABLE_TEST_HOME": str(self.home), "DURABLE_TEST_PAUSE": "0.2"}
        return {**os.environ, **own, **more}

    def worker(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "agentkit", "worker", AGENTS, "--lease", "2", "--poll", "0.5", *options]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment(**environment), stderr=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        return process

    def attempts(self, what: str = "%") -> list[tuple[str, int]]:
        """Return keys and processes of the attempts of tools so far."""
        path = self.home / "world.db"
        if not path.exists():
            return []
        world = sqlite3.connect(path, timeout=60)
        try:
            return world.execute("SELECT key, pid FROM attempts ORDER BY at").fetchall()
        except sqlite3.OperationalError:  # the database is being created
            return []
        finally:
            world.close()

    def acts(self) -> list[str]:
        world = sqlite3.connect(self.home / "world.db", timeout=60)
        try:
            return sorted(what for (what,) in world.execute("SELECT what FROM acts"))
        finally:
            world.close()

    async def until(self, happened: Callable[[], Any]) -> None:
        end = time.monotonic() + LONG
        while not happened():
            assert time.monotonic() < end, [process.poll() for process in self._processes]
            await asyncio.sleep(0.02)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self.runs.close()


@contextmanager
def site(url: str, home: Path) -> Iterator[Site]:
    home.mkdir(exist_ok=True)
    made = Site(url, home)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def agents(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Return the module of the agents, as this process has it for a database."""
    import importlib.util

    with ExitStack() as stack:

        def load(url: str) -> Any:
            monkeypatch.setenv("DURABLE_TEST_URL", url)
            monkeypatch.setenv("DURABLE_TEST_HOME", str(tmp_path / "site"))
            spec = importlib.util.spec_from_file_location("agents_here", AGENTS)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            stack.callback(module.runs.close)
            return module

        yield load


async def test_a_killed_worker_repeats_only_the_calls_that_were_in_progress(
    url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    cashier = agents(url).cashier
    with site(url, tmp_path / "site") as here:
        handle = await cashier.start("Pay both.", run_id="r")
        await handle.send("Before the start.")
        first = here.worker(DURABLE_TEST_HELD="pay")
        await here.until(lambda: len(here.attempts()) >= 3)  # two lookups, then a payment
        await handle.send("Before the kill.", key="1")
        first.kill()
        before = here.attempts()
        await handle.send("Before the kill.", key="1")  # again, as after a lost answer
        await handle.send("After the kill.", when="idle")
        here.worker()
        ended = await handle.result(timeout=LONG)
        assert ended.output == "paid: Pay both."
        assert here.acts() == ["look Ada", "look Bob", "pay Ada", "pay Bob"]
        after = here.attempts()[len(before) :]
        looks = {key for key, _ in before[:2]}
        assert not looks & {key for key, _ in after}, "what had ended was done again"
        assert len({key for key, _ in here.attempts()}) == 4
        roles = [message.role for message in ended.messages]
        steps = ["assistant", "tool", "tool", "assistant", "tool", "tool"]
        assert roles == ["user", "user", *steps, "user", "assistant", "user", "assistant"]
        texts = [message.text for message in ended.messages if message.role == "user"]
        assert texts == ["Pay both.", "Before the start.", "Before the kill.", "After the kill."]
        assert ((await handle.info()).attempts >= 2, await handle.unread()) == (True, [])


@pytest.mark.long
async def test_a_kill_inside_a_tool_of_an_inner_agent_repeats_only_that_call_and_limits_continue(
    url: str, tmp_path: Path, agents: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_TEST_TOKENS", "40")  # four model calls take 48, three of them before the kill
    module = agents(url)
    with site(url, tmp_path / "site") as here:
        handle = await module.manager.start("Help Ada.", run_id="r")
        first = here.worker(DURABLE_TEST_HELD="pay")
        await here.until(lambda: len(here.attempts()) >= 2)  # the inner agent has looked, and pays
        first.kill()
        looked, paying = [key for key, _ in here.attempts()]
        before = (await handle.journal()).inner["h"]
        assert [entry.effect for entry in before.entries].count("CallModel") == 2
        here.worker()
        with pytest.raises(RunFailed) as failed:
            await handle.result(timeout=LONG)
        assert (failed.value.kind, failed.value.usage.input_tokens) == ("LimitExceeded", 40)
        assert [key for key, _ in here.attempts()].count(looked) == 1
        assert [key for key, _ in here.attempts()].count(paying) == 2
        assert here.acts() == ["look Ada", "pay Ada"]
        inner = (await handle.journal()).inner["h"]
        assert inner.entries[: len(before.entries)] == before.entries
        trace = await handle.trace()
        assert [span["name"] for span in trace["spans"]][:2] == ["chat", "execute_tool help"]


@pytest.mark.long
def test_a_second_worker_on_a_sqlite_file_is_refused(url: str, tmp_path: Path, agents: Callable[[str], Any]) -> None:
    other_name = tmp_path / "other.db"
    other_name.symlink_to(url.removeprefix("sqlite:///"))
    with site(url, tmp_path / "site") as here, agents(url).runs.worker(grace=0):
        _, said = here.worker(DURABLE_TEST_URL=f"sqlite:///{other_name}").communicate(timeout=LONG)
        assert f"process {os.getpid()} is the worker of" in said
        assert "a SQLite file allows only one: " in said


@pytest.mark.long
async def test_a_stopped_worker_returns_runs_that_do_not_end_in_time_to_the_queue(
    url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    with site(url, tmp_path / "site") as here:
        handle = await agents(url).lingerer.start("0.1", run_id="r")
        first = here.worker("--grace", "0.1", DURABLE_TEST_HELD="lingering")
        await here.until(here.attempts)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=LONG) == 0
        assert (await handle.info()).state == "queued"
        assert [message.role for message in (await handle.journal()).messages] == ["user"]
        here.worker()
        assert (await handle.result(timeout=LONG)).output == "it took long"
        assert len({key for key, _ in here.attempts()}) == 1
        assert [worker.state for worker in await here.runs.workers()] == ["stopped", "alive"]


def test_the_command_line_lists_decides_and_resumes(url: str, agents: Callable[[str], Any]) -> None:
    module = agents(url)

    def command(*words: str) -> Any:
        return CliRunner().invoke(app, ["runs", *words, "--url", url])

    async def begin() -> None:
        with pytest.raises(Paused):
            options: Any = {"run_id": "refund-1", "user": "ada", "tags": ["vip", "de"]}
            await (await module.refunder.start("Pay back.", **options)).result(timeout=LONG)

    async def end() -> str:
        return str((await module.runs.handle("refund-1").result(timeout=LONG)).output)

    with module.runs.worker(poll=0.1, grace=0):
        asyncio.run(begin())
        (info,) = [json.loads(line) for line in command("list", "--json").stdout.splitlines()]
        assert (info["run_id"], info["state"], info["waiting"][0]["tool"]) == ("refund-1", "waiting", "refund")
        row = command("list").stdout.splitlines()[1]
        assert row.split()[2:5] == ["refunder", "local", "ada"] and "vip, de" in row and info["tags"] == ["vip", "de"]
        for option, value, count in (("user", "ada", 1), ("user", "bob", 0), ("tag", "de", 1), ("tag", "d", 0)):
            assert len(command("list", f"--{option}", value, "--json").stdout.splitlines()) == count
        refused = command("approve", "refund-1", "x9")
        assert refused.exit_code == 1
        assert "unknown call 'x9'; waiting calls: 'r'" in refused.stderr
        twice = command("approve", "refund-1", "r", "--arguments", '{"name": "Ada", "name": "Mallory"}')
        assert twice.exit_code == 2 and "duplicate name 'name'" in " ".join(twice.stderr.split())
        assert command("deny", "refund-1", "r", "--reason", "too late", "--by", "ada").exit_code == 0
        assert "too late" in asyncio.run(end())
        shown = command("show", "refund-1").stdout
        assert "user: Pay back." in shown and "denied r by ada: too late" in shown
        assert "alive" in command("workers").stdout
        assert command("show", "nothing").exit_code == 1


def test_texts_of_models_and_users_cannot_control_a_terminal_or_imitate_an_output_line(
    url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    evil = "a\x1b[2J\u202eb\u2066\u2028\nwaits: refund {} (r2)"
    module = agents(url)

    @tool(approval="always")
    def pay(to: str) -> str:
        """Pay a person."""
        return to

    asked = Message(
        "assistant", evil, tool_calls=(ToolCall(evil, "pay", json.dumps({"to": evil}, ensure_ascii=False)),)
    )
    payer = Agent(ScriptedModel([asked, evil]), tools=[pay], name="payer")
    module.runs.add(payer)

    async def begin() -> None:
        with pytest.raises(Paused):
            await (await payer.start(evil, run_id="evil")).result(timeout=LONG)

    with module.runs.worker(poll=0.1, grace=0):
        asyncio.run(begin())
    shown: list[str] = []
    for words in (["list"], ["show", "evil"], ["approve", "evil", "--by", evil], ["show", "evil"], ["cancel", "evil"]):
        done = CliRunner().invoke(app, ["runs", *words, "--url", url])
        assert done.exit_code == 0, done.output
        assert not {"\x1b", "\u202e", "\u2066", "\u2028"} & {*done.output}
        assert "\nwaits: refund" not in done.output
        if words[0] == "show" and "waits: pay" in done.output:
            shown.append(done.output)
    # The argument, on one line, with escapes for each character that could steer the terminal.
    assert len(shown) == 1
    assert '  to: "a\\u001b[2J\\u202eb\\u2066\\u2028\\nwaits: refund {} (r2)"\n' in shown[0]


@pytest.mark.long
async def test_another_worker_continues_the_runs_of_a_dead_worker_after_its_lease(
    postgres_url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    module = agents(postgres_url)
    with site(postgres_url, tmp_path / "site") as here:
        first = here.worker(DURABLE_TEST_HELD="pay")
        handle = await module.cashier.start("Pay both.", run_id=f"r-{os.getpid()}")
        await here.until(lambda: len(here.attempts()) >= 3)
        here.worker()
        first.kill()
        assert (await handle.result(timeout=LONG)).output == "paid: Pay both."
        assert here.acts() == ["look Ada", "look Bob", "pay Ada", "pay Bob"]
        pids = [pid for _, pid in here.attempts()]
        assert len(set(pids)) == 2
        assert {worker.pid: worker.state for worker in await here.runs.workers()}[first.pid] == "dead"


@pytest.mark.long
async def test_a_worker_that_was_stopped_for_longer_than_its_lease_does_no_more_work(
    postgres_url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    module = agents(postgres_url)
    with site(postgres_url, tmp_path / "site") as here:
        first = here.worker(DURABLE_TEST_HELD="look")
        handle = await module.cashier.start("Pay both.", run_id=f"away-{os.getpid()}")
        await here.until(lambda: len(here.attempts()) >= 2)
        first.send_signal(signal.SIGSTOP)
        here.worker()
        assert (await handle.result(timeout=LONG)).output == "paid: Pay both."
        before = here.attempts()
        (here.home / "go").touch()
        first.send_signal(signal.SIGCONT)
        assert first.wait(timeout=LONG) == 1
        assert {key for key, _ in here.attempts()} == {key for key, _ in before}
        assert here.acts() == ["look Ada", "look Bob", "pay Ada", "pay Bob"]
        assert first.stderr is not None and "it lost its lease" in first.stderr.read()


@pytest.mark.long
async def test_a_worker_that_stops_in_a_transaction_delays_no_run(
    postgres_url: str, tmp_path: Path, agents: Callable[[str], Any]
) -> None:
    module = agents(postgres_url)
    engine = sa.create_engine(sa.make_url(postgres_url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE agentkit_workers%'"
    )
    with site(postgres_url, tmp_path / "site") as here:
        first = here.worker(DURABLE_TEST_HELD="look")
        handle = await module.cashier.start("Pay both.", run_id=f"within-{os.getpid()}")
        await here.until(lambda: len(here.attempts()) >= 2)
        with engine.begin() as other, engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
            other.execute(sa.text("LOCK TABLE agentkit_workers"))
            await here.until(lambda: watch.scalar(waiting))
            first.send_signal(signal.SIGSTOP)  # its row is locked when this lock is released, and it cannot commit
        here.worker()
        assert (await handle.result(timeout=LONG)).output == "paid: Pay both."
