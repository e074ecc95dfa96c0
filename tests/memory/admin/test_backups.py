"""Backups and exports: atomic, complete, verified during reading, between both databases."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event

from agentkit.memory import EmbedderError, InvalidArgument, Memory, Scope, StoreCorrupt, StoreError, StoreUnavailable
from agentkit.prompts import Message, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.database.migrate import REVISION
from agentkit_memory.errors import StoreVersion
from agentkit_memory.index.folder_lock import FolderLock
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

ADA = Scope("acme", user="ada")


def fill(memory: Memory, docs: Path) -> None:
    """Store rows in each table, with names and values that are difficult to serialize."""
    (docs / "a.md").write_text("# Zoo\n\nZebras are striped.\n\u2028 \U0001f993 \"quoted\" \\ 'single'\n", "utf-8")
    memory.ingest(docs)
    mine = memory.within(ADA)
    call = Message("assistant", "", tool_calls=(ToolCall("c", "look", '{"a.b": "\\"x\\""}'),))
    session = mine.session("chat", expires_at=4e9)
    session.append(Message("user", "herons fish in the morning", name="Ada"), call, key="k")
    session.append(Message("tool", "found", tool_call_id="c"), said_at=5.5)
    session.keep_note("a.b 'c'", {"1": [1.5, None]})
    session.fork("other", at=1).append(Message("user", "otters too"))
    session.redact(1, "[gone] herons")
    memory.worker(lambda turns, known: []).drain()
    turn = mine.recall("otters")[0].id
    mine.facts.add("Ada likes axolotls.", sources=turn, metadata={"a.b": {'"quoted"': ["x" * 4000]}})
    mine.facts.add("Ada lives in Rome.", supersedes=mine.facts.add("Ada lives in Oslo.", valid_to=9e9).id)
    memory.within(Scope("gone", user="x")).session("s").append(Message("user", "bye"))
    memory.within("gone").erase("gone")
    memory.worker().drain()
    mine.recall("heron")


def rows(memory: Memory) -> dict[str, list[str]]:
    """Return the rows of each table, without the columns of the index."""
    memory.recall_logs()  # writes the logs now
    about = {"vector_spaces": ("index_id", "writes"), "vector_state": ("have", "leased_by", "leased_until")}
    return {
        table: sorted(
            repr({name: value for name, value in row._mapping.items() if name not in about.get(table, ())})
            for row in held
            if table != "vector_state" or row.space == "facts"
        )
        for table, held in StoreProbe(memory).dump().items()
    }


Write = Callable[[Memory, Path], int]
WRITES: dict[str, Write] = {
    "backup": lambda memory, path: memory.admin.backup(path),
    "export": lambda memory, path: memory.admin.export(path),
}
either_kind = pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in WRITES.items()])


@either_kind
def test_a_restored_store_has_the_stored_rows_and_finds_them(
    either: Memory, docs: Path, tmp_path: Path, write: Write
) -> None:
    fill(either, docs)
    copy = tmp_path / "copy"
    assert write(either, copy) > 0
    before = rows(either)
    assert {name for name, held in before.items() if not held} == {"embeddings", "images"}
    with Memory(tmp_path / "second") as second:
        counts = second.admin.restore(copy)
        assert rows(second) == before
        assert counts["messages"] == len(before["messages"])
        assert [found.text for found in second.within(ADA).recall("axolotls").knowledge] == ["Ada likes axolotls."]
        second.worker().drain()
        assert second.admin.verify().ok and second.admin.verify().points > 0
        assert "Zebras are striped." in second.recall("zebras striped")[0].text
        session = second.within(ADA).session("chat")
        assert len(session.append(Message("user", "again"), key="k2")) == 4
        new = second.within(ADA).session("new")
        new.append(Message("user", "first"))
        assert new.address[1] > session.address[1]  # new numbers follow the restored numbers
    assert rows(either) == before


@pytest.mark.parametrize("write", [pytest.param(write, id=f"{name}-postgresql") for name, write in WRITES.items()])
def test_a_folder_moves_to_postgresql_and_back(
    home: Path, docs: Path, tmp_path: Path, fresh_postgres: str, write: Write
) -> None:
    with Memory(home, embedder=Words()) as memory:
        fill(memory, docs)
        before = rows(memory)
        assert before["embeddings"]
        write(memory, tmp_path / "there")
    words = Words()
    with Memory(fresh_postgres, index=tmp_path / "index") as server:
        server.admin.restore(tmp_path / "there")
        assert rows(server) == before
    with Memory(fresh_postgres, index=tmp_path / "index", embedder=words) as server:
        server.worker().drain()
        assert server.admin.verify().ok and server.admin.verify().pending == 0
        assert "Ada likes axolotls." not in words.asked  # the vectors are included
        for number in range(3):
            server.session(f"new {number}").append(Message("user", "hello"))
        server.worker().drain()
        before = rows(server)
        write(server, tmp_path / "back")
    with Memory(tmp_path / "again") as again:
        again.admin.restore(tmp_path / "back")
        assert rows(again) == before


@either_kind
def test_a_copy_during_writes_is_consistent(home: Path, tmp_path: Path, write: Write) -> None:
    with Memory(home) as memory:
        stop = threading.Event()

        def chat() -> None:
            session, other = memory.session("one"), memory.session("two")
            number = 0
            while not stop.is_set():
                number += 1
                session.append(Message("user", str(number)))
                other.append(Message("user", str(number)))

        thread = threading.Thread(target=chat)
        thread.start()
        try:
            for number in range(5):
                write(memory, tmp_path / str(number))
        finally:
            stop.set()
            thread.join()
    for number in range(5):
        with Memory(tmp_path / f"home {number}") as copy:
            copy.admin.restore(tmp_path / str(number))
            one, two = (
                [message.text for message in copy.session(name).conversation] if copy.session(name) else []
                for name in ("one", "two")
            )
            assert one == [str(each) for each in range(1, len(one) + 1)]
            assert two in (one, one[:-1])  # each message was written after the message of the other session


@either_kind
def test_a_truncated_or_changed_copy_is_refused_and_nothing_is_written(
    home: Path, docs: Path, tmp_path: Path, write: Write
) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        write(memory, tmp_path / "copy")
    whole = (tmp_path / "copy").read_bytes()
    draw = Random(4)
    ends = {0, 1, 15, 16, 17, len(whole) // 2, *range(len(whole) - 8, len(whole)), *draw.sample(range(len(whole)), 60)}
    damaged = [whole[:end] for end in sorted(ends)]
    for place in draw.sample(range(len(whole)), 60):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
    lines = whole.splitlines(keepends=True)
    damaged += [b"".join(lines[:2] + lines[3:]), b"".join(lines[1:]), whole + b"x", whole + whole]
    with Memory(tmp_path / "second") as second:
        before = rows(second)
        for number, data in enumerate(damaged):
            (tmp_path / "damaged").write_bytes(data)
            with pytest.raises((StoreCorrupt, StoreVersion)) as refused:
                second.admin.restore(tmp_path / "damaged")
            assert "corrupt" in str(refused.value) or "upgrade" in str(refused.value), number
            assert number % 40 or rows(second) == before
        assert rows(second) == before
        (tmp_path / "damaged").write_bytes(whole)
        assert second.admin.restore(tmp_path / "damaged")["messages"] > 0


def test_a_copy_of_a_newer_version_is_refused(home: Path, docs: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        memory.admin.export(tmp_path / "export")
        StoreProbe(memory).execute("UPDATE alembic_version SET version_num = '9999'")
        memory.admin.backup(tmp_path / "backup")
    export = (tmp_path / "export").read_bytes()
    (tmp_path / "format").write_bytes(export.replace(b'export": 1', b'export": 2', 1))
    (tmp_path / "revision").write_bytes(export.replace(b'"revision": "', b'"revision": "9', 1))
    with Memory(tmp_path / "second") as second:
        for name, fault in (("backup", "revision"), ("format", "format"), ("revision", "format")):
            with raises(StoreVersion, name=fault):
                second.admin.restore(tmp_path / name)


def signed(lines: list[dict[str, Any]]) -> bytes:
    """Return an export of these lines with a valid digest, as a forger can compute it."""
    import hashlib

    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"rows": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


SCOPE: dict[str, Any] = {"table": "scopes", "row": {"id": 5, "tenant": "t", "user": "", "session": "", "agent": ""}}


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"table": "passwords", "row": {}}, "table"),
        ({"table": "scopes", "row": {"id": 1}}, "tenant, user, session, agent"),
        ({"table": "scopes", "row": {**SCOPE["row"], "id": "x"}}, "id"),
        ({"table": "scopes", "row": {**SCOPE["row"], "id": 2**63}}, "id"),
        ({"table": "scopes", "row": {**SCOPE["row"], "user": "a\0"}}, "user"),
        ({"table": "scopes", "row": {**SCOPE["row"], "user": None}}, "user"),
        ({"table": "scopes", "row": {**SCOPE["row"], "admin": 1}}, "admin"),
        ({"table": "scopes", "row": [1]}, None),
        ({"table": ["scopes"], "row": {}}, None),
        ({"table": "conversations", "row": {"id": 1, "scope_id": 9, "name": "s", "created_at": 1}}, "rows"),
        (
            {"table": "conversations", "row": {"id": 1, "scope_id": 5, "name": "s", "created_at": math.nan}},
            "created_at",
        ),
        ({"table": "embeddings", "row": {"model": "m", "content_hash": "h", "vector": "?", "created_at": 1}}, "vector"),
        (SCOPE, "rows"),
    ],
)
def test_an_edited_export_is_refused_with_the_line(
    home: Path, tmp_path: Path, wrong: dict[str, Any], name: str | None
) -> None:
    header = {"agentkit-memory-export": 1, "revision": REVISION, "at": 1.0}
    (tmp_path / "export").write_bytes(signed([header, SCOPE, wrong]))
    with Memory(home) as memory:
        line = None if name == "rows" else 3
        with raises(StoreCorrupt, path=str(tmp_path / "export"), name=name, line=line) as caught:
            memory.admin.restore(tmp_path / "export")
        assert [problem.place for problem in caught.value.problems] == ([] if line is None else ["line 3"])
        assert memory.admin.usage() == ()
        (tmp_path / "export").write_bytes(signed([header, SCOPE]))
        memory.admin.restore(tmp_path / "export")
        assert [each.tenant for each in memory.admin.usage()] == ["t"]


def test_the_error_names_all_problems_of_an_export(home: Path, tmp_path: Path) -> None:
    header = {"agentkit-memory-export": 1, "revision": REVISION, "at": 1.0}
    wrong = {"table": "scopes", "row": {"id": "x"}}
    (tmp_path / "export").write_bytes(signed([header, *[wrong] * 12]))
    with Memory(home) as memory, raises(StoreCorrupt, line=2, name="id") as caught:
        memory.admin.restore(tmp_path / "export")
    assert [problem.place for problem in caught.value.problems] == [f"line {number}" for number in range(2, 14)]


@either_kind
def test_existing_files_and_rows_are_not_overwritten_and_a_copy_is_private(
    home: Path, docs: Path, tmp_path: Path, write: Write
) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        write(memory, tmp_path / "copy")
        assert os.name != "posix" or stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
        with raises(StoreUnavailable, name="exists"):
            write(memory, tmp_path / "copy")
        with raises(StoreError, name="rows"):
            memory.admin.restore(tmp_path / "copy")
        for wrong in (None, "", 5, b"x", "a\0b"):
            for act in (memory.admin.backup, memory.admin.export, memory.admin.restore):
                with pytest.raises(InvalidArgument):
                    act(wrong)  # type: ignore[arg-type]
        for act in (memory.admin.backup, memory.admin.export):
            with pytest.raises(StoreUnavailable) as caught:
                act(tmp_path / "nowhere" / "copy")
            assert caught.value.path == str(tmp_path / "nowhere" / "copy")
        with raises(StoreUnavailable, path=str(tmp_path / "nothing")):
            memory.admin.restore(tmp_path / "nothing")
        assert {each.name for each in tmp_path.iterdir()} == {"copy", "docs", "store"}


def test_two_concurrent_exports_to_one_path_write_a_complete_file(home: Path, docs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Memory(home) as memory, Memory(home) as other, Memory(tmp_path / "second") as second:
        fill(memory, docs)
        first = [True]

        def write_other(*_: object) -> None:
            if first and any("copy" in each.name for each in tmp_path.iterdir()):
                first.clear()
                other.admin.export(copy)

        event.listen(StoreProbe(memory).engine, "before_cursor_execute", write_other)
        assert memory.admin.export(copy) > 0 and not first
        second.admin.restore(copy)
        assert rows(second) == rows(memory)
    assert {each.name for each in tmp_path.iterdir()} == {"copy", "docs", "second", "store"}


@pytest.mark.skipif(os.name != "posix", reason="the limit of a file is POSIX's")
@either_kind
def test_a_full_disk_leaves_no_file_and_does_not_change_the_store(
    home: Path, docs: Path, tmp_path: Path, write: Write
) -> None:
    import resource

    with Memory(home) as memory:
        fill(memory, docs)
        before = rows(memory)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        try:
            with pytest.raises(StoreUnavailable) as caught:
                write(memory, tmp_path / "copy")
            assert Path(str(caught.value.path)).name == "copy"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert {each.name for each in tmp_path.iterdir()} == {"docs", "store"}
        assert rows(memory) == before
        write(memory, tmp_path / "copy")
    with Memory(tmp_path / "second") as second:
        StoreProbe(second).fill_disk()
        with pytest.raises(StoreUnavailable):
            second.admin.restore(tmp_path / "copy")
        assert second.admin.usage() == ()


def test_a_backup_is_copied_into_the_folder_of_the_store_and_leftovers_are_removed(
    home: Path, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        memory.admin.backup(tmp_path / "copy")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    second = tmp_path / "second"
    with Memory(second) as memory:
        memory.admin.restore(tmp_path / "copy")
        assert not (second / "restoring").exists()
    shutil.copytree(second, second / "restoring")
    Memory(second).close()
    assert not (second / "restoring").exists()
    third = tmp_path / "third"
    lock = FolderLock(third / "restoring")  # of a running restore
    with Memory(third) as memory, raises(StoreUnavailable, name="restore"):
        memory.admin.restore(tmp_path / "copy")
    assert (third / "restoring").exists()
    lock.release()
    with Memory(third) as memory:
        memory.admin.restore(tmp_path / "copy")


@pytest.mark.skipif(os.name != "posix", reason="the limit of a file is POSIX's")
def test_the_error_of_a_failed_copy_of_a_backup_names_the_copy(home: Path, docs: Path, tmp_path: Path) -> None:
    import resource

    with Memory(home) as memory:
        fill(memory, docs)
        memory.admin.backup(tmp_path / "copy")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Memory(tmp_path / "second") as memory:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        try:
            with raises(StoreUnavailable, path=str(tmp_path / "second" / "restoring" / "memory.db")):
                memory.admin.restore(tmp_path / "copy")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        memory.admin.restore(tmp_path / "copy")


def test_a_restore_into_a_store_with_another_model_is_refused(home: Path, docs: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        memory.admin.backup(tmp_path / "copy")
    with Memory(tmp_path / "second", embedder=Words()) as second:
        with raises(EmbedderError, name="embedder", value="words-1"):
            second.admin.restore(tmp_path / "copy")
        assert second.admin.usage() == ()


def test_a_backup_contains_no_deleted_text(home: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        session = memory.session("s")
        session.append(Message("user", "Xanadu " * 100))
        memory.delete_session("s")
        memory.admin.backup(tmp_path / "copy")
    assert b"Xanadu" not in (tmp_path / "copy").read_bytes()


def test_backups_and_writers_do_not_wait_for_each_other(home: Path, docs: Path, tmp_path: Path) -> None:
    with Memory(home, timeout=0.05) as memory:
        fill(memory, docs)
        memory.recall_logs()  # writes the logs now
        with closing(sqlite3.connect(home / "memory.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert memory.admin.backup(tmp_path / "copy") > 0
        appended: list[int] = []

        def append(*_: object) -> None:
            if not appended:
                appended.append(1)
                memory.session("s").append(Message("user", "hello"))

        event.listen(StoreProbe(memory).engine, "after_cursor_execute", append)
        assert memory.admin.export(tmp_path / "export") > 0 and appended


def test_a_handle_of_one_scope_has_no_admin(memory: Memory) -> None:
    handle = memory.within(Scope("acme", user="ada"))
    for each in (handle, handle.within("local"), memory.within("local")):
        with raises(InvalidArgument, name="admin"):
            _ = each.admin
    assert memory.admin.usage() == ()


def test_usage_counts_the_rows_of_each_tenant(either: Memory, docs: Path) -> None:
    fill(either, docs)
    acme, local = either.admin.usage()
    assert (acme.tenant, local.tenant) == ("acme", "local")
    assert (acme.users, acme.conversations, acme.messages, acme.facts) == (1, 1, 4, 3)
    assert (acme.turns, acme.chunks, acme.documents, acme.recall_logs) == (2, 0, 0, 2)
    assert (local.users, local.documents, local.chunks, local.messages) == (0, 1, 1, 0)
    assert acme.characters > 4000 > local.characters > 20
