"""Scopes of reads: each read names its scopes, and returns no row of another scope for any ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from agentkit.memory import InvalidArgument, Memory, Scope
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.store.item_rows import read_around, read_items
from agentkit_memory.store.scope_rows import readable_ids
from tests.effort import tries
from tests.raising import raises

NAMES = st.sampled_from(["", "1", "2", "'", '" --', "%", "1\n", "é"])
SCOPES = st.builds(Scope, st.sampled_from(["a", "b", "a'; --"]), NAMES, NAMES, NAMES)
RUNS = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("shared")) as memory:
        yield memory


@pytest.fixture(scope="module")
def shared_database(shared: Memory) -> Iterator[Database]:
    opened = Database.open(Path(StoreProbe(shared).target) / "memory.db")
    yield opened
    opened.close()


@given(written=st.lists(SCOPES, min_size=1, max_size=5, unique=True), reader=SCOPES)
@settings(max_examples=tries(15, 40), deadline=None)
def test_a_reader_gets_only_shared_rows_and_rows_of_its_scope(
    shared: Memory, shared_database: Database, written: list[Scope], reader: Scope
) -> None:
    run = str(next(RUNS))
    facts = {}
    for scope in written:
        mine = shared.within(Scope(f"{scope.tenant}{run}", scope.user, scope.session, scope.agent))
        facts[scope] = mine.facts.add(f"fact of {scope}")
        mine.session("s").append(Message("user", f"turn of {scope}"))
        mine.recall(f"question of {scope}")
    shared.worker().drain()
    here = shared.within(Scope(f"{reader.tenant}{run}", reader.user, reader.session, reader.agent))
    visible = {scope for scope in written if scope in reader.readable()}
    ids = [item.id for item in StoreProbe(shared).items()]  # of all scopes
    with shared_database.read() as connection:
        scopes = readable_ids(connection, here.scope)
        found = read_items(connection, ids, scopes, 0.0)
        # A conversation without a user belongs to the user `local`, see `Scope.with_default_user`.
        turns = {scope for scope in written if scope.with_default_user() in reader.readable()}
        readable = {f"fact of {scope}" for scope in visible} | {f"turn of {scope}" for scope in turns}
        assert {each.text for each in found} == readable
        assert all(each.scope_id in scopes for each in read_around(connection, found, scopes, 0.0, 3))
    assert {scope for scope in written if here.facts.get(facts[scope].id)} == visible
    mine_only = {reader} & set(written)
    assert [each.text for each in here.facts.list()] == [f"fact of {scope}" for scope in mine_only]
    assert [each.query for each in here.recall_logs()] == [f"question of {scope}" for scope in mine_only]
    assert [each.text for each in here.session("s").conversation] == [f"turn of {scope}" for scope in mine_only]
    for scope in set(written) - {reader}:
        assert not here.facts.remove(facts[scope].id)


@pytest.mark.parametrize("wrong", [None, "1", [None], ["1"], [1.0], [True]])
@pytest.mark.parametrize(
    "read",
    [
        lambda connection, scopes: read_items(connection, ["x"], scopes, 0.0),
        lambda connection, scopes: read_around(connection, [], scopes, 0.0),
    ],
)
def test_a_read_without_scopes_is_an_error(
    memory: Memory, database: Database, read: Callable[[Connection, Any], object], wrong: object
) -> None:
    with database.read() as connection, raises(InvalidArgument, name="scope_ids"):
        read(connection, wrong)


def test_a_reader_of_empty_scopes_finds_nothing(either: Memory, database: Database) -> None:
    fact = either.facts.add("x")
    with database.read() as connection:
        assert readable_ids(connection, Scope("new")) == []
        assert read_items(connection, [fact.id], [], 0.0) == []
        with pytest.raises(InvalidArgument):
            readable_ids(connection, None)  # type: ignore[arg-type]


def test_a_scope_gets_a_new_number_if_another_scope_has_its_number(either: Memory) -> None:
    a, z = StoreProbe(either.within("a")), StoreProbe(either.within("z"))
    number = a.scope_number
    a.execute("DELETE FROM scopes")
    a.execute(f"INSERT INTO scopes (id, tenant, \"user\", session, agent) VALUES ({number}, 'z', '', '', '')")
    assert a.scope_number == number + 1
    assert z.scope_number == number and a.scope_number == number + 1
