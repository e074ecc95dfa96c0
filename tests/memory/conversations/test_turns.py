"""Turns of conversations become items: once, in order, and only turns that are useful for recall."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from agentkit.memory import InvalidArgument, Memory, Scope
from agentkit.prompts import Image, Message, Text, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.conversations.turns import itemise
from agentkit_memory.database.engine import Database
from agentkit_memory.store.item_rows import read_around, read_items
from agentkit_memory.store.scope_rows import readable_ids
from tests.effort import spread
from tests.raising import raises


def rows(memory: Memory, columns: str = "text") -> list[Any]:
    """Return columns of the turns, in order of their conversations."""
    turns = sorted(StoreProbe(memory).items("turn"), key=lambda turn: (turn.branch_id, turn.position))
    names = columns.split(", ")
    if len(names) == 1:
        return [turn._mapping[columns] for turn in turns]
    return [tuple(turn._mapping[name] for name in names) for turn in turns]


def all_of(database: Database, limit: int = 100, scopes: Sequence[int] | None = None) -> int:
    total = 0
    while seen := itemise(database, scopes, limit):
        total += seen
    return total


def test_messages_of_users_and_assistants_become_items_but_not_tool_messages(
    either: Memory, database: Database
) -> None:
    either.session("s").append(
        Message("system", "be kind"),
        Message("user", "hello", name="Ann"),
        Message("assistant", "", tool_calls=(ToolCall("1", "look"),)),
        Message("tool", "seen", tool_call_id="1", name="look"),
        Message("assistant", "I saw it.", tool_calls=(ToolCall("2", "look"),)),
        Message("user", (Text("And \0this: "), Image(Path("cat.png")))),
        Message("user", " \n"),
        said_at=77.0,
    )
    assert all_of(database) == 7
    assert rows(either, "position, speaker, text, said_at") == [
        (2, "Ann", "hello", 77.0),
        (5, "assistant", "I saw it.", 77.0),
        (6, "user", "And \ufffdthis: [image: cat.png]", 77.0),
    ]
    assert all_of(database) == 0


def test_the_text_of_a_complete_message_is_stored_once(either: Memory) -> None:
    said = ['an "odd" \\n text\nof two lines, é', "a bell\x07rings"]
    session = either.session("s")
    session.append(Message("user", said[0]), Message("user", said[1], name="Ann"), Message("user", (Text("a part"),)))
    either.worker().drain()
    assert rows(either) == [*said, "a part"]
    probe = StoreProbe(either)
    assert probe.values("SELECT text FROM items ORDER BY position") == ["", *rows(either)[1:]]
    assert "".join(probe.values("SELECT body FROM messages")).count("odd") == 1
    session.redact(1, 'a "new" text')
    assert rows(either)[0] == 'a "new" text'


@pytest.mark.parametrize(
    "body", spread(["", "{", "x", '{"role":"user","content":"a', '{"role":"user","content":7}', "[" * 100_000], 2)
)
def test_an_item_with_a_damaged_message_does_not_affect_other_items(either: Memory, body: str) -> None:
    either.session("s").append(Message("user", "zebra bad"), Message("user", "zebra good"))
    either.worker().drain()
    StoreProbe(either).execute("UPDATE messages SET body = :body WHERE seq = 1", {"body": body})
    found = either.recall("zebra")
    assert [each.text for each in found.recalled] == ["zebra good"]
    assert any("1 corrupt items were left out" in each for each in found.degraded)
    assert not either.admin.verify().ok
    either.admin.repair()
    either.session("s", load=False).append(Message("user", "zebra new"))
    either.worker().drain()
    assert {each.text for each in either.recall("zebra").recalled} == {"zebra good", "zebra new"}
    assert len(either.admin.usage()) == 1


def test_the_watermark_moves_by_the_limit_and_each_message_is_processed_once(
    either: Memory, database: Database
) -> None:
    for name in ("a", "b"):
        session = either.session(name)
        for number in range(5):
            session.append(Message("user", f"{name}{number}"))
    assert [itemise(database, None, 3) for _ in range(5)] == [3, 3, 3, 1, 0]
    assert rows(either) == [f"{name}{number}" for name in "ab" for number in range(5)]
    either.session("a").append(Message("user", "later"))
    assert all_of(database) == 1 and len(rows(either)) == 11


def test_concurrent_workers_make_items_during_appends(either: Memory, database: Database) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            while not done.is_set() or itemise(database, None, 7):
                itemise(database, None, 3)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    sessions = [either.session(name) for name in "ab"]
    for number in range(40):
        for session in sessions:
            session.append(Message("user", f"{session.id}{number}"))
    done.set()
    for worker in workers:
        worker.join()
    assert not failures
    assert rows(either) == [f"{name}{number}" for name in "ab" for number in range(40)]
    assert StoreProbe(either).values("SELECT count(*) FROM vector_state") == [80]


def test_a_message_shared_with_a_fork_is_one_item(either: Memory) -> None:
    main = either.session("s")
    main.append(Message("user", "shared"))
    main.fork("f").append(Message("user", "own"))
    either.worker().drain()
    assert rows(either) == ["shared", "own"]


def test_only_turns_of_the_given_scopes_become_items(either: Memory, database: Database) -> None:
    for tenant in ("a", "b"):
        either.within(tenant).session("s").append(Message("user", tenant))
    assert all_of(database, scopes=[StoreProbe(either.within(Scope("a", user="local"))).scope_number]) == 1
    assert all_of(database, scopes=[]) == 0 and rows(either) == ["a"]
    with raises(InvalidArgument, name="scope_ids"):
        itemise(database, "a", 1)  # type: ignore[arg-type]


def test_a_damaged_message_is_skipped_and_a_message_of_a_newer_version_waits(
    either: Memory, database: Database
) -> None:
    session = either.session("s")
    session.append(*[Message("user", str(number)) for number in range(5)])
    probe = StoreProbe(either)
    probe.execute("UPDATE messages SET body = '{' WHERE seq = 2")
    probe.execute("UPDATE messages SET format = 99 WHERE seq = 4")
    assert all_of(database) == 3 and rows(either) == ["0", "2"]
    probe.execute("UPDATE messages SET format = 1 WHERE seq = 4")
    assert all_of(database) == 2 and rows(either) == ["0", "2", "3", "4"]


def test_a_turn_has_its_conversation_and_its_neighbours(either: Memory, database: Database) -> None:
    session = either.session("chat")
    session.append(*[Message("user", word) for word in ("one", "two", "three", "four", "five")])
    fork = session.fork("f", at=2)
    fork.append(Message("user", "aside"))
    either.within("other").session("chat").append(Message("user", "theirs"))
    all_of(database)
    item_ids = {item.text: item.id for item in StoreProbe(either).items()}
    ids, aside = [item_ids["three"], item_ids["theirs"]], item_ids["aside"]
    with database.read() as connection:
        scopes = readable_ids(connection, session.scope)
        (three,) = read_items(connection, ids, scopes, 0.0)
        assert (three.kind, three.conversation, three.branch, three.position) == ("turn", "chat", "main", 3)
        around = read_around(connection, [three], scopes, 0.0)
        assert sorted(each.text for each in around) == ["four", "two"]
        assert sorted(each.text for each in read_around(connection, [three], scopes, 0.0, 2)) == sorted(
            ["one", "two", "four", "five"]
        )
        (found,) = read_items(connection, [aside], scopes, 0.0)
        assert found.branch == "f"
        assert read_around(connection, [], scopes, 0.0) == []
        assert read_items(connection, [aside], readable_ids(connection, Scope("other")), 0.0) == []


def test_the_same_message_has_the_same_item_in_each_store(
    memory: Memory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Memory(tmp_path_factory.mktemp("other")) as other:
        other.session("before").append(Message("user", "x"))
        for each in (memory, other):
            each.session("s").append(Message("user", "hello"))
            each.worker().drain()
        assert set(rows(memory, "id")) < set(rows(other, "id"))


def test_a_turn_that_becomes_an_item_gets_a_concurrent_end_of_its_conversation(
    either: Memory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = database.change
    either.session("s").append(Message("user", "the code word is Xanadu"))

    def late(act: Callable[[Connection], Any], **options: Any) -> Any:
        monkeypatch.setattr(database, "change", change)
        either.session("s", expires_at=2000.0)  # another writer, after the worker found the turn
        return change(act, **options)

    monkeypatch.setattr(database, "change", late)
    assert all_of(database) == 1
    assert rows(either, "valid_to") == [2000.0]
