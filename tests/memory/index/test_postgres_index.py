"""PostgreSQL as the index: in the database of the memory, or in another database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from agentkit.memory import IndexBroken, IndexUnavailable, Memory, Scope, StoreClosed
from agentkit.memory.recall import Point, VectorIndex
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index.opening import index_opener
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from tests.memory.embedders.word_embedder import Words
from tests.postgres import stopped
from tests.raising import raises

pytestmark = pytest.mark.long

ONE, TWO = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
USER = "agentkit_tests"


def run(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for each in statements:
            connection.execute(each.encode())


def rows(address: str, statement: str) -> list[Any]:
    with psycopg.connect(address) as connection:
        return connection.execute(statement.encode()).fetchall()


def tables(address: str) -> list[str]:
    return [name for (name,) in rows(address, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]


@pytest.fixture
def plain_user(fresh_postgres: str) -> Iterator[str]:
    """Address of a user without special rights, in a database without pgvector."""
    run(fresh_postgres, f"CREATE ROLE {USER} LOGIN", f"GRANT ALL ON SCHEMA public TO {USER}")
    parts = urlsplit(fresh_postgres)
    yield parts._replace(netloc=f"{USER}:@").geturl()
    run(fresh_postgres, f"DROP OWNED BY {USER} CASCADE", f"DROP ROLE {USER}")


def test_a_database_is_enough_for_many_processes(fresh_postgres: str) -> None:
    with Memory(fresh_postgres, embedder=Words()) as one, Memory(fresh_postgres, embedder=Words()) as two:
        one.session("s").append(Message("user", "Ada saw a zebra."), Message("user", "Ada likes tea."))
        one.worker().drain()
        assert [each.text for each in two.recall("zebra", limit=1)] == ["Ada saw a zebra."]
        two.session("t").append(Message("user", "Ada saw an okapi."))
        two.worker().drain()
        recall = one.recall("okapi", limit=1)
        assert ([each.text for each in recall], recall.degraded) == (["Ada saw an okapi."], ())
        assert "dense" in recall.explain()[0].why
        assert one.admin.verify().ok and not one.admin.compact() and two.admin.rebuild().ok
    with Memory(fresh_postgres, embedder=Words()) as again:
        assert again.admin.verify().points == 3
        assert again.admin.reembed(None, gate=None).flipped
        assert again.recall("okapi").degraded == () and again.admin.verify().points == 3


def test_an_erased_user_is_in_no_row(fresh_postgres: str) -> None:
    ada, bob = Scope("local", user="ada"), Scope("local", user="bob")
    with Memory(fresh_postgres, embedder=Words()) as memory:
        for scope in (ada, bob):
            memory.within(scope).session("s").append(Message("user", f"{scope.user} drinks green tea"))
        memory.worker().drain()
        number = StoreProbe(memory.within(ada)).scope_number
        ids = [item.id for item in StoreProbe(memory).items() if "ada" in item.text]
        found = occurrences(fresh_postgres, str(number), *ids)
        assert any(name.endswith("_dense") for name in found) and "items" in found
        proof = memory.erase(ada)
        assert proof.complete and proof.points == 0 and not proof.compacted and "VACUUM" in proof.note
        assert occurrences(fresh_postgres, str(number), *ids) == set()
        assert [each.text for each in memory.within(bob).recall("tea")] == ["bob drinks green tea"]
        assert memory.admin.verify().ok


def occurrences(address: str, *texts: str) -> set[str]:
    """Return the tables with a row that contains any of the texts."""
    found = set()
    for name in tables(address):
        for row in rows(address, f'SELECT * FROM "{name}"'):
            if any(text in repr(row) for text in texts):
                found.add(name)
    return found


def test_words_need_no_extension_and_the_error_of_vectors_names_the_problem(
    fresh_postgres: str, plain_user: str
) -> None:
    with Memory(plain_user) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
        assert [each.text for each in memory.recall("zebra").knowledge] == ["zebra"]
    opener = index_opener(plain_user)
    with raises(IndexBroken, name="pgvector", value="privilege"):
        opener("dense", 2)
    # A user who finds these tables before the tables of the system sees a server without pgvector, or an old pgvector.
    run(
        fresh_postgres,
        "CREATE VIEW public.pg_available_extensions AS SELECT * FROM pg_catalog.pg_available_extensions WHERE false",
        f"GRANT SELECT ON public.pg_available_extensions TO {USER}",
        f"ALTER ROLE {USER} SET search_path = public, pg_catalog",
    )
    with raises(IndexBroken, name="pgvector", value="missing"):
        index_opener(plain_user)("dense", 2)
    run(
        fresh_postgres,
        "DROP VIEW public.pg_available_extensions",
        "CREATE EXTENSION vector",
        "CREATE VIEW public.pg_extension AS SELECT oid, extname, '0.4.4' AS extversion, extnamespace "
        "FROM pg_catalog.pg_extension",
        f"GRANT SELECT ON public.pg_extension TO {USER}",
    )
    with raises(IndexBroken, name="pgvector", value="0.4.4"):
        index_opener(plain_user)("dense", 2)
    assert "dense" not in {space for (space,) in rows(fresh_postgres, "SELECT space FROM agentkit_indexes")}
    run(fresh_postgres, "DROP VIEW public.pg_extension")
    opened = index_opener(plain_user)("dense", 2)
    assert opened.count() == 0
    opened.close()


def test_the_extension_can_be_in_another_schema(fresh_postgres: str) -> None:
    run(
        fresh_postgres,
        'DROP SCHEMA IF EXISTS "Its extensions" CASCADE',
        'CREATE SCHEMA "Its extensions"',
        'CREATE EXTENSION vector SCHEMA "Its extensions"',
    )
    index = index_opener(fresh_postgres)("space", 2)
    index.upsert([Point(ONE, 1, 1, document_vector("zebra"), [1.0, 0.0])])
    assert [tuple(hit) for hit in index.query_dense([2.0, 0.0], [1], 5)] == [(ONE, 1.0)]
    index.close()
    run(fresh_postgres, 'DROP SCHEMA "Its extensions" CASCADE')


def test_points_without_vectors_and_vectors_of_zeros(fresh_postgres: str) -> None:
    index = index_opener(fresh_postgres)("space", 2)
    index.upsert([Point(ONE, 1, 1, document_vector("zebra"), [0.0, 0.0]), Point(TWO, 1, 1, document_vector("okapi"))])
    assert [tuple(hit) for hit in index.query_dense([1.0, 0.0], [1], 5)] == [(ONE, 0.0)]
    index.upsert([Point(TWO, 2, 2, document_vector(""), [0.0, 1.0]), Point(ONE, 2, 1, document_vector("zebra"))])
    assert index.query_dense([1.0, 0.0], [1], 5) == index.query_sparse(query_vector("okapi"), [1, 2], 5) == []
    assert [hit.id for hit in index.query_dense([0.0, 1.0], [1, 2, 2], 5)] == [TWO]
    assert (index.count([1]), index.count([2]), index.count([])) == (1, 1, 0)
    index.delete([TWO])
    assert rows(fresh_postgres, "SELECT count(*) FROM agentkit_index_1_dense") == [(1,)]
    index.close()


def test_a_dropped_index_is_built_again(fresh_postgres: str) -> None:
    for statement in ("DROP TABLE agentkit_index_1", "DROP TABLE agentkit_indexes", "DELETE FROM agentkit_indexes"):
        with Memory(fresh_postgres) as memory:
            memory.facts.add("zebra")
            memory.worker().drain()
            index = StoreProbe(memory).index
            number = rows(fresh_postgres, "SELECT max(number) FROM agentkit_indexes")[0][0]
            run(fresh_postgres, statement.replace("_1", f"_{number}"))
            if "agentkit_index_" in statement:
                with raises(IndexBroken, name="bm25-4", value="refused"):
                    index.count()
                assert memory.recall("zebra").degraded
        if statement == "DROP TABLE agentkit_indexes":
            run(fresh_postgres, f"DROP TABLE agentkit_index_{number}")
        with Memory(fresh_postgres) as memory:
            memory.worker().drain()
            assert memory.recall("zebra").knowledge and memory.admin.verify().ok, statement


def test_a_table_of_another_program_is_not_changed(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(tmp_path / "one", index=fresh_postgres) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
    with Memory(tmp_path / "two", index=fresh_postgres) as memory, raises(IndexBroken, name="bm25-4", value=1):
        memory.worker().drain()
    with raises(IndexBroken, name="bm25-4", value=0):
        index_opener(fresh_postgres)("bm25-4", 3)
    with Memory(tmp_path / "one", index=fresh_postgres) as memory:
        assert memory.recall("zebra").knowledge


def test_an_unreachable_server_leaves_all_items_queued(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(tmp_path / "home", index=fresh_postgres, timeout=0.2) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
        with stopped(fresh_postgres):
            memory.facts.add("another zebra")
            with raises(IndexUnavailable, name="bm25-4", value="away"):
                memory.worker().drain()
            recall = memory.recall("zebra")
            assert len(recall.knowledge) == 2 and recall.degraded
        memory.worker().drain()
        assert len(memory.recall("zebra").knowledge) == 2 and memory.admin.verify().ok
        # A restart fails no call.
        run(
            fresh_postgres,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()"
            " AND datname = current_database() AND backend_type = 'client backend'",
        )
        assert memory.recall("zebra").degraded == ()


def test_concurrent_workers_can_open_and_write_an_index(fresh_postgres: str) -> None:
    opened: list[VectorIndex] = []
    problems: list[BaseException] = []
    zebra = document_vector("zebra")
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(60)]

    def write(first: int) -> None:
        try:
            index = index_opener(fresh_postgres)("space", 2)
            opened.append(index)
            for version in range(1, 6):
                order = ids if version % 2 else ids[::-1]
                index.upsert([Point(each, first * 5 + version, 1, zebra, [1.0, 0.5]) for each in order])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not problems and len({index.id for index in opened}) == 1
    assert list(opened[0].versions()) == [(each, 20) for each in ids]
    for index in opened:
        index.close()
    uses: list[Callable[[], object]] = [opened[0].count, opened[0].clear, lambda: opened[0].delete(ids)]
    for use in uses:
        with pytest.raises(StoreClosed):
            use()


def test_tables_with_a_trigger_or_a_rule_are_refused(fresh_postgres: str) -> None:
    index_opener(fresh_postgres)("space", 2).close()
    run(fresh_postgres, "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    for table in ("agentkit_indexes", "agentkit_index_1", "agentkit_index_1_dense"):
        run(fresh_postgres, f"CREATE TRIGGER spy BEFORE DELETE ON {table} EXECUTE FUNCTION act()")
        with raises(IndexBroken, name="spy"):
            index_opener(fresh_postgres)("space", 2)
        run(fresh_postgres, f"DROP TRIGGER spy ON {table}")
    run(fresh_postgres, "CREATE RULE spy AS ON DELETE TO agentkit_index_1 DO INSTEAD NOTHING")
    with raises(IndexBroken, name="spy"):
        index_opener(fresh_postgres)("space", 2)


def test_points_are_read_in_pages(fresh_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.index.postgres_index._PAGE", 4)
    index = index_opener(fresh_postgres)("space", 0)
    for count in (3, 4, 5, 8, 9):
        ids = [f"{number:08x}-0000-0000-0000-000000000000" for number in range(count)]
        index.upsert([Point(each, 1, 1, document_vector("zebra")) for each in ids])
        assert list(index.versions()) == [(each, 1) for each in ids]
    index.close()
