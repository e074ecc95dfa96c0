"""What is no folder, path, number, policy or time is refused with a typed error, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit_memory import (
    Gate,
    IngestError,
    IngestOptions,
    InvalidArgument,
    Memory,
    RecallFilter,
    RecallPolicy,
    StoreError,
)
from agentkit_prompts.context.messages import Message
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

HUGE = 10**30
"""A whole number that no database holds."""
ENDLESS = 10**400
"""One that is no float either."""


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
def test_what_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(InvalidArgument, name=name) as caught:
        Memory.open(*arguments, **options)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [HUGE, -1, "x"])
def test_what_is_no_number_of_logs_to_keep(home: Path, keep: Any) -> None:
    with raises(InvalidArgument, name="keep"):
        Memory.open(home, keep_recalls=keep)
    assert not home.exists()


@pytest.mark.parametrize("now", [math.nan, math.inf, ENDLESS, None, "noon", True])
def test_a_clock_that_shows_no_time(home: Path, docs: Path, now: Any) -> None:
    times = [now]
    with Memory.open(home, clock=lambda: times[0]) as memory:
        (docs / "a.md").write_text("zebra")
        for act in (lambda: memory.ingest(docs), lambda: memory.recall("zebra")):
            with raises(StoreError, name="clock"):
                act()
        times[0] = 1_700_000_000.0
        memory.ingest(docs)
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]


@pytest.mark.parametrize("paths", [None, 5, [5], b"notes", {"notes": 1}, ["notes", None]])
def test_what_is_no_path(memory: Memory, paths: Any) -> None:
    with raises(IngestError, source="ingest"):
        memory.ingest(paths)


def test_a_path_that_no_file_can_have_is_reported_and_the_others_are_ingested(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    report = memory.ingest(["\ud800", docs, "\0"])
    assert [error.source for error in report.errors] == ["\\ud800", "\\x00"]
    assert len(report.added) == 1


OPTIONS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (IngestOptions, {"lenient": 5}, "lenient"),
    (IngestOptions, {"lenient": None}, "lenient"),
    (IngestOptions, {"record_text": 5}, "record_text"),
    (IngestOptions, {"record_text": (None,)}, "record_text"),
    (IngestOptions, {"record_title": None}, "record_title"),
    (IngestOptions, {"record_metadata": b"x"}, "record_metadata"),
]


@pytest.mark.parametrize(("kind", "options", "name"), OPTIONS)
def test_what_is_no_option_of_an_ingestion(kind: Callable[..., Any], options: dict[str, Any], name: str) -> None:
    with raises(IngestError, name=name):
        kind(**options)


@pytest.mark.parametrize("options", [{"options": 5}, {"options": []}, {"on_progress": 5}])
def test_nothing_is_ingested_with_what_are_no_options(memory: Memory, docs: Path, options: Any) -> None:
    (docs / "a.md").write_text("zebra")
    with raises(IngestError, name=next(iter(options))):
        memory.ingest(docs, **options)
    assert not memory.recall("zebra")


@pytest.mark.parametrize("messages", [("x",), (None,), (Message("user", "zebra"), {"role": "user"})])
def test_what_is_no_message(memory: Memory, messages: Any) -> None:
    session = memory.session("s")
    for act in (session.append, session.append_now):
        with pytest.raises(InvalidArgument):
            act(*messages)
    assert not session.page() and not session.conversation


@pytest.mark.parametrize("replacement", [None, 5, []])
def test_what_cannot_replace_a_message(memory: Memory, replacement: Any) -> None:
    session = memory.session("s")
    session.append(Message("user", "zebra"))
    with raises(InvalidArgument, name="replacement"):
        session.redact(1, replacement)
    assert session.refresh()[0].text == "zebra"


@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**31, "x"])
def test_what_is_no_number_of_a_message(either: Memory, number: Any) -> None:
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


def test_a_limit_that_no_database_holds(memory: Memory) -> None:
    with pytest.raises(InvalidArgument):
        memory.session("s").page(limit=HUGE)
    with pytest.raises(InvalidArgument):
        memory.recall_logs(limit=HUGE)


@pytest.mark.parametrize("time", [ENDLESS, True])
def test_what_is_no_time(memory: Memory, time: Any) -> None:
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


@pytest.mark.parametrize("session", [5, "s", b""])
def test_what_is_no_session(memory: Memory, session: Any) -> None:
    with pytest.raises(InvalidArgument):
        memory.recall("zebra", session=session)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"sample": sample} for sample in (None, "x", math.nan, math.inf, True, HUGE)),
        *({share: value} for share in ("self_retrieval", "overlap", "failing") for value in (None, "x", True)),
        *({"questions": questions} for questions in (None, 5, "zebra", (5,), {"zebra": 1})),
    ],
    ids=str,
)
def test_what_is_no_gate(wrong: Any) -> None:
    with raises(InvalidArgument, name=next(iter(wrong))):
        Gate(**wrong)


@pytest.mark.parametrize("options", [{"gate": 5}, {"gate": ""}, {"on_progress": 5}], ids=str)
@pytest.mark.parametrize("embedder", [None, Words()], ids=["no change", "a change"])
def test_what_a_change_of_the_model_cannot_be_checked_by(memory: Memory, embedder: Any, options: Any) -> None:
    with pytest.raises(InvalidArgument):
        memory.admin.reembed(embedder, **options)
    assert not memory.admin.abandon_reembed()


@pytest.mark.parametrize("extract", [5, "", []])
def test_what_is_no_extractor(memory: Memory, extract: Any) -> None:
    with raises(InvalidArgument, name="extract"):
        memory.worker(extract)


@pytest.mark.parametrize("number", ["x", 1.5, True, HUGE, -HUGE])
def test_what_is_no_number_of_a_log(memory: Memory, number: Any) -> None:
    for act in (lambda: memory.recall_logs(after=number), lambda: memory.recall_logs(before=number)):
        with pytest.raises(InvalidArgument):
            act()


POLICIES: list[tuple[Callable[[], RecallPolicy], str]] = [
    (lambda: RecallPolicy(name=5), "name"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(retrievers="bm25"), "retrievers"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(retrievers=("bm25",)), "retrievers"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(scorers=None), "scorers"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(candidates="80", around=None, tokens="2"), "candidates, around, tokens"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity="much", collapse=1), "diversity, collapse"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity=math.nan, candidates=True), "candidates, diversity"),
]


@pytest.mark.parametrize(("make", "name"), POLICIES)
def test_what_is_no_policy(make: Callable[[], RecallPolicy], name: str) -> None:
    with raises(InvalidArgument, name=name):
        make()


def test_a_policy_that_is_none(memory: Memory) -> None:
    for policy in (5, ["default"], b"default"):
        with raises(InvalidArgument, name="policy"):
            memory.recall("zebra", policy=policy)  # type: ignore[arg-type]


def test_the_folder_of_nobody_is_a_folder_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory.open("~nobody-of-that-name") as memory:
        assert "~nobody-else" in str(memory.ingest("~nobody-else/a.md").errors[0])
    assert (tmp_path / "~nobody-of-that-name" / "memory.db").exists()


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_names_that_no_database_holds_are_refused_or_found_nowhere(either: Memory, name: str) -> None:
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
