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

HUGE = 10**30
"""A whole number that no database holds."""
ENDLESS = 10**400
"""One that is no float either."""


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "expected a folder or a postgresql:// URL to open a memory in, got None"),
        ((5,), {}, "expected a folder .*got 5"),
        (("store",), {"index": 5}, "index: expected a folder, the address of a Qdrant server, or .*got 5"),
        (("store",), {"clock": 5}, "clock: expected a function that returns seconds since 1970, got 5"),
        (("store",), {"timeout": "long"}, "timeout: expected seconds .*got 'long'"),
        (("store",), {"index": "mysql://root:secret@localhost"}, "index: expected a folder, .* got another address"),
        (("store",), {"index": "\0"}, r"index: expected a folder, got '\\x00'"),
        (("store",), {"index": Path("store/\ud800")}, r"index: expected a folder, got 'store/\\ud800'"),
    ],
)
def test_what_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=message) as caught:
        Memory.open(*arguments, **options)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [HUGE, -1, "x"])
def test_what_is_no_number_of_logs_to_keep(home: Path, keep: Any) -> None:
    with pytest.raises(InvalidArgument, match="expected how many to keep, 0 or more, or None for all, got"):
        Memory.open(home, keep_recalls=keep)
    assert not home.exists()


@pytest.mark.parametrize("now", [math.nan, math.inf, ENDLESS, None, "noon", True])
def test_a_clock_that_shows_no_time(home: Path, docs: Path, now: Any) -> None:
    times = [now]
    with Memory.open(home, clock=lambda: times[0]) as memory:
        (docs / "a.md").write_text("zebra")
        for act in (lambda: memory.ingest(docs), lambda: memory.recall("zebra")):
            with pytest.raises(StoreError, match="expected seconds since 1970 from the clock that was given, got"):
                act()
        times[0] = 1_700_000_000.0
        memory.ingest(docs)
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]


@pytest.mark.parametrize("paths", [None, 5, [5], b"notes", {"notes": 1}, ["notes", None]])
def test_what_is_no_path(memory: Memory, paths: Any) -> None:
    with pytest.raises(IngestError, match="expected paths of files and folders, got"):
        memory.ingest(paths)


def test_a_path_that_no_file_can_have_is_reported_and_the_others_are_ingested(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    report = memory.ingest(["\ud800", docs, "\0"])
    assert [error.source for error in report.errors] == ["\\ud800", "\\x00"]
    assert len(report.added) == 1


OPTIONS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (IngestOptions, {"lenient": 5}, "lenient: expected True or False, got 5"),
    (IngestOptions, {"lenient": None}, "lenient: expected True or False, got None"),
    (IngestOptions, {"record_text": 5}, "record_text: expected a tuple of names, got 5"),
    (IngestOptions, {"record_text": (None,)}, r"record_text: expected a tuple of names, got \(None,\)"),
    (IngestOptions, {"record_title": None}, "record_title: expected a tuple of names, got None"),
    (IngestOptions, {"record_metadata": b"x"}, "record_metadata: expected a tuple of names, got b'x'"),
]


@pytest.mark.parametrize(("kind", "options", "message"), OPTIONS)
def test_what_is_no_option_of_an_ingestion(kind: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(IngestError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": 5}, "expected IngestOptions.* got 5"),
        ({"options": []}, r"expected IngestOptions.* got \[\]"),
        ({"on_progress": 5}, "expected a function to call with the progress, got 5"),
    ],
)
def test_nothing_is_ingested_with_what_are_no_options(memory: Memory, docs: Path, options: Any, message: str) -> None:
    (docs / "a.md").write_text("zebra")
    with pytest.raises(IngestError, match=message):
        memory.ingest(docs, **options)
    assert not memory.recall("zebra")


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (("x",), r"append\[0\]: expected a message or its mapping, got str"),
        ((None,), r"append\[0\]: expected a message or its mapping, got NoneType"),
        ((Message("user", "zebra"), {"role": "user"}), r"append\[1\]\.content: missing"),
    ],
)
def test_what_is_no_message(memory: Memory, messages: Any, problem: str) -> None:
    session = memory.session("s")
    for act in (session.append, session.append_now):
        with pytest.raises(InvalidArgument, match=problem):
            act(*messages)
    assert not session.page() and not session.conversation


@pytest.mark.parametrize("replacement", [None, 5, []])
def test_what_cannot_replace_a_message(memory: Memory, replacement: Any) -> None:
    session = memory.session("s")
    session.append(Message("user", "zebra"))
    with pytest.raises(InvalidArgument, match="expected text as the replacement, got"):
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
        with pytest.raises(InvalidArgument, match="expected the number of a message, got"):
            act()
    none: Any = None
    for act in (lambda: session.tool_calls(after=none), lambda: session.redact(none)):
        with pytest.raises(InvalidArgument, match="expected the number of a message, got None"):
            act()
    assert session.page(after=1 - 2**31, limit=2**63 - 1) and not session.page(after=2**31 - 1)


def test_a_limit_that_no_database_holds(memory: Memory) -> None:
    with pytest.raises(InvalidArgument, match=r"expected a limit of 1 or more messages, got 10+"):
        memory.session("s").page(limit=HUGE)
    with pytest.raises(InvalidArgument, match=r"expected a limit of 1 or more, got 10+"):
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
        with pytest.raises(InvalidArgument, match="expected seconds since 1970, got"):
            act()
    assert not session.page()


@pytest.mark.parametrize("session", [5, "s", b""])
def test_what_is_no_session(memory: Memory, session: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"expected a session, as `memory.session\(...\)` returns it, got"):
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
    with pytest.raises(InvalidArgument, match=rf"Gate\.{next(iter(wrong))}: expected .*, got"):
        Gate(**wrong)


@pytest.mark.parametrize("options", [{"gate": 5}, {"gate": ""}, {"on_progress": 5}], ids=str)
@pytest.mark.parametrize("embedder", [None, Words()], ids=["no change", "a change"])
def test_what_a_change_of_the_model_cannot_be_checked_by(memory: Memory, embedder: Any, options: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"reembed: expected a .*, got"):
        memory.admin.reembed(embedder, **options)
    assert not memory.admin.abandon_reembed()


@pytest.mark.parametrize("extract", [5, "", []])
def test_what_is_no_extractor(memory: Memory, extract: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"worker: expected an extractor, .*got"):
        memory.worker(extract)


@pytest.mark.parametrize("number", ["x", 1.5, True, HUGE, -HUGE])
def test_what_is_no_number_of_a_log(memory: Memory, number: Any) -> None:
    for act in (lambda: memory.recall_logs(after=number), lambda: memory.recall_logs(before=number)):
        with pytest.raises(InvalidArgument, match="expected the number of a log as"):
            act()


POLICIES: list[tuple[Callable[[], RecallPolicy], str]] = [
    (lambda: RecallPolicy(name=5), "name: expected text"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(retrievers="bm25"), "retrievers: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(retrievers=("bm25",)), "retrievers: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(scorers=None), "scorers: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(candidates="80", around=None, tokens="2"), "candidates: .*around: .*tokens: "),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity="much", collapse=1), "diversity: .*collapse: "),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity=math.nan, candidates=True), "candidates: .*diversity: "),
]


@pytest.mark.parametrize(("make", "message"), POLICIES)
def test_what_is_no_policy(make: Callable[[], RecallPolicy], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_a_policy_that_is_none(memory: Memory) -> None:
    for policy in (5, ["default"], b"default"):
        with pytest.raises(InvalidArgument, match="unknown policy"):
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
        with pytest.raises(InvalidArgument, match="sessions"):
            ask()
    assert either.documents.get(name) is None
    assert isinstance(either.documents.list(after=name), tuple)
    assert len(either.recall("heron", where=RecallFilter(sources=[name]))) == 0
