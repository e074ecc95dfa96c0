"""Invalid folders, paths, numbers, policies and times: typed errors before any effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import Gate, IngestError, IngestOptions, InvalidArgument, Memory, RecallFilter, Scope, StoreError
from agentkit.memory.recall import BM25Retriever, DenseRetriever, RecallPolicy, RecencyScorer
from agentkit.prompts import Document, Message
from tests.cases import for_cases
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

HUGE = 10**30
"""Whole number that a database cannot store."""
ENDLESS = 10**5000
"""Whole number above the largest float, which Python does not write as text."""
HELLO = Message("user", "hello")


def untyped(value: object) -> Any:
    """Return a value as Any, to hide its wrong type from the type checker."""
    return value


class Later:
    async def __call__(self, turns: object, known: object) -> list[object]:
        return []


Refusal = tuple[Callable[[Memory], object], type[StoreError], dict[str, object]]


def by(
    kind: type[StoreError], act: Callable[[Memory, Any], object], *wrong: object, **attributes: object
) -> list[Refusal]:
    """Return the errors of wrong values: an error of a class with these attributes."""
    return [(lambda memory, value=value: act(memory, value), kind, attributes) for value in wrong]  # type: ignore[misc]


invalid, unread = partial(by, InvalidArgument), partial(by, IngestError)
LONG_NAMES = dict.fromkeys(("tenant", "user", "session", "agent"), "\U00020000" * 200)
GATES: dict[str, tuple[object, ...]] = {
    "sample": (None, "x", math.nan, math.inf, True, ENDLESS, 0),
    "self_retrieval": (None, "x", True, 1.1),
    "overlap": (None, "x", True, -0.1),
    "failing": (None, "x", True, math.nan),
    "questions": (None, 5, "zebra", (5,), {"zebra": 1}),
}
PARTS: dict[str, tuple[Callable[[], object], ...]] = {
    "share": (lambda: BM25Retriever(share=untyped("x")), lambda: DenseRetriever(share=-1.0)),
    "answer": (lambda: BM25Retriever(answer=untyped([])),),
    "weight": (lambda: RecencyScorer(math.nan),),
    "half_life": (lambda: RecencyScorer(half_life=0.0),),
    "candidates": (lambda: RecallPolicy(candidates=ENDLESS),),
    "name": (lambda: RecallPolicy(name=untyped(5)),),
    "retrievers": (
        lambda: RecallPolicy(retrievers=untyped("bm25")),
        lambda: RecallPolicy(retrievers=untyped(("bm25",))),
    ),
    "scorers": (lambda: RecallPolicy(scorers=untyped(None)),),
    "candidates, around, tokens": (
        lambda: RecallPolicy(candidates=untyped("80"), around=untyped(None), tokens=untyped("2")),
    ),
    "diversity, collapse": (lambda: RecallPolicy(diversity=untyped("much"), collapse=untyped(1)),),
    "candidates, diversity": (lambda: RecallPolicy(diversity=math.nan, candidates=True),),
    "retrievers, candidates, around, diversity, tokens": (
        lambda: RecallPolicy(retrievers=(), candidates=0, around=-1, diversity=2, tokens=0),
    ),
}
REFUSED: list[Refusal] = [
    *invalid(lambda memory, sample: memory.admin.verify(sample=sample), -1, 1.5, "5", True, None, name="sample"),
    *invalid(lambda _, keep: Memory("new", keep_recalls=keep), ENDLESS, -1, "x", True, "all", name="keep"),
    *invalid(lambda memory, name: memory.session(name), "", "a\0", "x" * 256),
    *invalid(lambda memory, key: memory.session("s").append(HELLO, key=key), "\0", "x" * 256),
    *invalid(lambda memory, limit: memory.session("s").page(limit=limit), ENDLESS),
    *invalid(lambda memory, after: memory.facts.list(after=after), "x", ENDLESS, None, name="after"),
    *invalid(lambda memory, limit: memory.facts.list(limit=limit), ENDLESS, name="limit"),
    *invalid(lambda memory, given: memory.facts.add("x", metadata=given), {"length": math.nan}, name="metadata"),
    *unread(lambda memory, paths: memory.ingest(paths), None, 5, [5], b"a", {"a": 1}, ["a", None], source="ingest"),
    *unread(lambda memory, after: memory.documents.list(after=after, limit=untyped(0)), 3, source="documents.list"),
    *unread(lambda memory, source: memory.documents.get(source), 3, source="documents"),
    *unread(lambda memory, meta: memory.documents.add(Document("x", source="s"), metadata=meta), [1], "x", 0, ["ab"]),
    *unread(lambda memory, after: memory.documents.chunks("s", after=after), ENDLESS, "x", None, True),
    *unread(lambda _, given: IngestOptions(lenient=given), 5, None, name="lenient", source="IngestOptions"),
    *unread(lambda _, given: IngestOptions(record_text=given), 5, (), (None,), "body", name="record_text"),
    *unread(lambda _, given: IngestOptions(record_title=given), None, "t", name="record_title"),
    *unread(lambda _, given: IngestOptions(record_metadata=given), b"x", "m", name="record_metadata"),
    *invalid(lambda memory, query: memory.recall(query), None, name="query"),
    *invalid(lambda memory, limit: memory.recall("x", limit=limit), 0, True, 2.5, ENDLESS, name="limit"),
    *invalid(lambda memory, count: memory.recall("x", visible=count), -1, True, 2.5, ENDLESS, name="visible"),
    *invalid(lambda memory, now: memory.recall("x", now=now), "noon", True, ENDLESS, name="now"),
    *invalid(lambda memory, where: memory.recall("x", where=where), {"kinds": ["turn"]}, name="where"),
    *invalid(lambda memory, session: memory.recall("x", session=session), 5, "s", b""),
    *invalid(
        lambda memory, policy: memory.recall("x", policy=policy), 5, ENDLESS, ["default"], b"default", name="policy"
    ),
    *invalid(lambda memory, policy: memory.recall("x", policy=policy), "best", name="policy", value="best"),
    *invalid(
        lambda memory, query: memory.recall(query, limit=0, visible=-1, now=untyped("today")),
        1,
        name="query, limit, visible, now",
    ),
    *invalid(lambda memory, limit: memory.recall_logs(limit=limit), ENDLESS, 0),
    *invalid(lambda memory, number: memory.recall_logs(after=number), "x", 1.5, True, ENDLESS, -ENDLESS),
    *invalid(lambda memory, number: memory.recall_logs(before=number), "x", 1.5, True, ENDLESS, -ENDLESS),
    *invalid(lambda memory, since: memory.was_erased("local", since), "x", None, True, math.nan, ENDLESS, name="since"),
    *invalid(lambda memory, extract: memory.worker(extract), 5, "", [], Later().__call__, Later(), name="extract"),
    *invalid(lambda _, tenant: Scope(tenant), "", name="tenant"),
    *invalid(lambda _, tenant: Scope(tenant), "a\0b", name="tenant"),
    *invalid(lambda _, user: Scope("a", user=user), "\ud800", name="user"),
    *invalid(lambda _, session: Scope("a", session=session), "s" * 256, name="session", value=256),
    *invalid(lambda _, agent: Scope("a", agent=agent), 7, name="agent", value=7),
    *invalid(lambda _, names: Scope(**names), LONG_NAMES, name="names", value=3_200),
    *[
        row
        for name, wrong in GATES.items()
        for row in invalid(lambda _, gate: Gate(**gate), *[{name: each} for each in wrong], name=name)
    ],
    *[row for name, wrong in PARTS.items() for row in invalid(lambda _, make: make(), *wrong, name=name)],
]


@for_cases(("act", "kind", "attributes"), REFUSED)
def test_a_wrong_argument_is_refused_and_nothing_is_stored(
    either: Memory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Memory], object],
    kind: type[StoreError],
    attributes: dict[str, object],
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(kind, **attributes):
        act(either)
    assert (
        not Path("new").exists()
        and not either.facts.list()
        and not either.documents.list()
        and not either.session("s").page()
    )


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((None,), {}, "target"),
        ((5,), {}, "target"),
        (("store",), {"index": 5}, "index"),
        (("store",), {"clock": 5}, "clock"),
        (("store",), {"timeout": "long"}, "timeout"),
        (("store",), {"index": "mysql://root:secret@localhost"}, "index"),
        (("store",), {"index": "\0"}, "index"),
        (("store",), {"index": Path("store/\ud800")}, "index"),
    ],
)
def test_an_invalid_target_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(InvalidArgument, name=name) as caught:
        Memory(*arguments, **options)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("now", [math.nan, math.inf, ENDLESS, None, "noon", True], ids=type)
def test_a_clock_with_an_invalid_time_is_refused(home: Path, docs: Path, now: Any) -> None:
    times = [now]
    with Memory(home, clock=lambda: times[0]) as memory:
        (docs / "a.md").write_text("zebra")
        for act in (lambda: memory.ingest(docs), lambda: memory.recall("zebra")):
            with raises(StoreError, name="clock"):
                act()
        times[0] = 1_700_000_000.0
        memory.ingest(docs)
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]


def test_an_impossible_path_is_reported_and_the_other_files_are_ingested(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    report = memory.ingest(["\ud800", docs, "\0"])
    assert [error.source for error in report.errors] == ["\\ud800", "\\x00"]
    assert len(report.added) == 1


@pytest.mark.parametrize("options", [{"options": 5}, {"options": []}, {"on_progress": 5}])
def test_nothing_is_ingested_with_invalid_options(memory: Memory, docs: Path, options: Any) -> None:
    (docs / "a.md").write_text("zebra")
    with raises(IngestError, name=next(iter(options))):
        memory.ingest(docs, **options)
    assert not memory.recall("zebra")


@pytest.mark.parametrize("messages", [("x",), (None,), (Message("user", "zebra"), {"role": "user"})])
def test_a_value_that_is_not_a_message_is_refused(memory: Memory, messages: Any) -> None:
    session = memory.session("s")
    for act in (session.append, session.append_now):
        with pytest.raises(InvalidArgument):
            act(*messages)
    assert not session.page() and not session.conversation


@pytest.mark.parametrize("replacement", [None, 5, []])
def test_an_invalid_replacement_of_a_message_is_refused(memory: Memory, replacement: Any) -> None:
    session = memory.session("s")
    session.append(Message("user", "zebra"))
    with raises(InvalidArgument, name="replacement"):
        session.redact(1, replacement)
    assert session.refresh()[0].text == "zebra"


@pytest.mark.parametrize("number", [ENDLESS, -ENDLESS, 2**31, "x"], ids=type)
def test_an_invalid_number_of_a_message_is_refused(either: Memory, number: Any) -> None:
    session = either.session("s")
    session.append(Message("user", "zebra"))
    for act in (
        lambda: session.page(after=number),
        lambda: session.page(before=number),
        lambda: session.tool_calls(after=number),
        lambda: session.redact(number),
        lambda: session.fork("other", at=number),
    ):
        with pytest.raises(InvalidArgument):
            act()
    none: Any = None
    for act in (lambda: session.tool_calls(after=none), lambda: session.redact(none)):
        with pytest.raises(InvalidArgument):
            act()
    assert session.page(after=1 - 2**31, limit=2**63 - 1) and not session.page(after=2**31 - 1)


@pytest.mark.parametrize("time", [ENDLESS, True, -math.inf], ids=type)
def test_an_invalid_time_is_refused(memory: Memory, time: Any) -> None:
    session = memory.session("s")
    for act in (
        lambda: memory.session("new", expires_at=time),
        lambda: memory.admin.expire(time),
        lambda: session.append(Message("user", "zebra"), said_at=time),
        lambda: session.append_now(Message("user", "zebra"), said_at=time),
    ):
        with pytest.raises(InvalidArgument):
            act()
    assert not session.page()


def test_the_time_of_a_message_can_be_any_whole_number(either: Memory) -> None:
    session = either.session("s")
    session.append(HELLO, said_at=HUGE)
    assert [message.said_at for message in session.page()] == [float(HUGE)]


@pytest.mark.parametrize("options", [{"gate": 5}, {"gate": ""}, {"on_progress": 5}], ids=str)
@pytest.mark.parametrize("embedder", [None, Words()], ids=["no change", "a change"])
def test_invalid_options_of_a_change_of_the_embedder_are_refused(memory: Memory, embedder: Any, options: Any) -> None:
    with pytest.raises(InvalidArgument):
        memory.admin.reembed(embedder, **options)
    assert not memory.admin.abandon_reembed()


def test_the_home_folder_of_an_unknown_user_is_a_normal_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory("~nobody-of-that-name") as memory:
        with pytest.raises(IngestError) as caught:
            memory.ingest("~nobody-else/a.md")
        assert caught.value.source == "~nobody-else/a.md"
    assert (tmp_path / "~nobody-of-that-name" / "memory.db").exists()


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_names_that_a_database_cannot_store_are_refused_or_not_found(either: Memory, name: str) -> None:
    either.documents.add("The heron is a bird.", source="heron.txt")
    either.worker().drain()
    for ask in (
        lambda: either.sessions(name=name),
        lambda: either.sessions(after=name),
        lambda: either.sessions(limit=0),
    ):
        with pytest.raises(InvalidArgument):
            ask()
    assert either.documents.get(name) is None
    assert isinstance(either.documents.list(after=name), tuple)
    assert len(either.recall("heron", where=RecallFilter(sources=[name]))) == 0
