"""Scopes of recall: no text of another scope is read, and no score depends on it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.memory import InvalidArgument, Memory, Scope
from agentkit.memory.recall import Point
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index import qdrant_edge
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from tests.effort import tries
from tests.raising import raises


def test_the_longest_names_of_a_scope_can_be_stored(either: Memory) -> None:
    draw = random.Random(1)  # compressible text would be shorter
    names = ["".join(chr(draw.randrange(0x20000, 0x2A6DF)) for _ in range(162)) for _ in range(4)]
    theirs = either.within(Scope(names[0], names[1], names[2], f"{names[3]}abcdefgh"))
    theirs.session("talk").append(Message("user", "I saw a zebra"))
    assert [found.text for found in theirs.recall("zebra")] == ["I saw a zebra"]
    with raises(InvalidArgument, name="names", value=2601):
        replace(theirs.scope, agent=f"{theirs.scope.agent}i")


def test_memory_cannot_be_opened_without_a_tenant(home: Path) -> None:
    with raises(InvalidArgument, name="scope", value="NoneType"):
        Memory(home, scope=None)  # type: ignore[arg-type]
    assert not home.exists()


def test_narrow_keeps_the_tenant_and_the_given_names() -> None:
    assert Scope("t", agent="a").narrow(user="u") == Scope("t", user="u", agent="a")


def test_a_reader_can_read_shared_scopes_and_its_scope() -> None:
    assert set(Scope("t", user="u").readable()) == {Scope("t"), Scope("t", user="u")}
    assert len(Scope("t", "u", "s", "a").readable()) == 8


def test_quotes_and_percent_signs_in_a_scope_are_literal(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("The zebra lives here.")
    odd = either.within("o'Brien\"; DROP TABLE items; --%_")
    odd.ingest(docs)
    assert [found.text for found in odd.recall("zebra")] == ["The zebra lives here."]
    assert either.within("o'Brien").recall("zebra") == ()


NAMES = st.sampled_from(["", "1", "2"])
SCOPES = st.builds(Scope, st.sampled_from(["a", "b"]), NAMES, NAMES, NAMES)
WORDS = st.lists(st.sampled_from(["zebra", "quartz", "violin", "harbor"]), min_size=1, max_size=6).map(" ".join)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("crowded")) as memory:
        yield memory


RUNS = count()


@given(written=st.lists(st.tuples(SCOPES, WORDS), min_size=1, max_size=6), reader=SCOPES, question=WORDS)
@settings(max_examples=tries(5, 15))
def test_a_recall_does_not_depend_on_the_content_of_other_scopes(
    crowded: Memory,
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[Scope, str]],
    reader: Scope,
    question: str,
) -> None:
    def recalled(entries: list[tuple[Scope, str]]) -> list[tuple[str, float | None]]:
        run = next(RUNS)  # separate tenants for each run
        folder = tmp_path_factory.mktemp("run")
        for number, (scope, words) in enumerate(entries):
            file = folder / f"{number}.txt"
            file.write_text(f"{words} {number}")
            crowded.within(replace(scope, tenant=f"{scope.tenant}{run}")).ingest(file)
        mine = crowded.within(replace(reader, tenant=f"{reader.tenant}{run}"))
        return [(found.text, found.score) for found in mine.recall(question, limit=20)]

    mine = [entry for entry in written if entry[0] in reader.readable()]
    with_others, alone = recalled(written), recalled(mine)
    assert [score for _, score in with_others] == pytest.approx([score for _, score in alone])
    asked = set(question.split())
    assert sorted(" ".join(text.split()[:-1]) for text, _ in with_others) == sorted(
        text for _, text in mine if asked & set(text.split())
    )


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_an_index_answers_for_the_requested_scopes_after_any_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(qdrant_edge, "_MAX_SCOPES", 3)  # the size of its cache
    draw = random.Random(seed)
    index = EdgeIndex(tmp_path, 4)
    held: dict[str, tuple[int, int]] = {}
    for step in range(1, 60):
        act = draw.choice(["write", "write", "move", "delete", "reopen", "clear" if draw.random() < 0.2 else "flush"])
        if act == "write":
            scope = draw.choice([1, 1, 1, 2, 3, 4, 5])
            for number in draw.sample(range(40), 6):
                held[str(UUID(int=number))] = step, scope
        elif act == "move" and held:
            held[draw.choice(sorted(held))] = step, draw.randrange(1, 6)
        elif act == "delete":
            scope = draw.randrange(1, 6)
            gone = [each for each in held if held[each][1] == scope]
            index.delete(gone)
            held = {each: at for each, at in held.items() if each not in gone}
        elif act == "reopen":
            index.close()
            index = EdgeIndex(tmp_path, 4)
        elif act == "clear":
            index.clear()
            held = {}
        else:
            index.flush()
        index.upsert(
            [
                Point(each, version, scope, document_vector("zebra"), [1.0, 0.0, 0.0, scope])
                for each, (version, scope) in held.items()
                if version == step
            ]
        )
        for scopes in ([1], [2], [3, 1], draw.sample(range(1, 6), 4), [1, 2, 3, 4, 5]):
            theirs = {each for each, (_, scope) in held.items() if scope in scopes}
            assert {hit.id for hit in index.query_sparse(query_vector("zebra"), scopes, 100)} == theirs
            assert {hit.id for hit in index.query_dense([1.0, 0.0, 0.0, 0.0], scopes, 100)} == theirs
    index.close()


def test_sql_filters_a_wrong_scope_in_the_index(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    other = memory.within("other")
    other.ingest(docs)
    (theirs,) = other.recall("zebra")
    probe = StoreProbe(memory)
    probe.index.upsert([Point(str(theirs.id), 9, probe.scope_number, document_vector("zebra"))])
    assert memory.recall("zebra") == ()
