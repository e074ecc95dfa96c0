"""What is no folder, path, number, policy or time is refused with a typed error, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit_memory import IngestError, Memory, RecallError, RecallPolicy, StoreError, StoreUnavailable


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "expected a folder or a postgresql:// URL to open a memory in, got None"),
        ((5,), {}, "expected a folder .*got 5"),
        (("store",), {"index": 5}, "index: expected a folder, the address of a Qdrant server, or .*got 5"),
        (("store",), {"clock": 5}, "clock: expected a function that returns seconds since 1970, got 5"),
        (("store",), {"timeout": "long"}, "timeout: expected seconds .*got 'long'"),
    ],
)
def test_what_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match=message):
        Memory.open(*arguments, **options)


@pytest.mark.parametrize("now", [math.nan, math.inf, None, "noon", True])
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


@pytest.mark.parametrize("number", ["x", 1.5, True])
def test_what_is_no_number_of_a_log(memory: Memory, number: Any) -> None:
    for act in (lambda: memory.recall_logs(after=number), lambda: memory.recall_logs(before=number)):
        with pytest.raises(RecallError, match="expected the number of a log as"):
            act()


POLICIES: list[tuple[Callable[[], RecallPolicy], str]] = [
    (lambda: RecallPolicy(name=5), "name: expected text"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(arms="words"), "arms: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(arms=("words",)), "arms: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(evidence=None), "evidence: expected a tuple"),  # type: ignore[arg-type]
    (lambda: RecallPolicy(candidates="80", around=None, tokens="2"), "candidates: .*around: .*tokens: "),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity="much", collapse=1), "diversity: .*collapse: "),  # type: ignore[arg-type]
    (lambda: RecallPolicy(diversity=math.nan, candidates=True), "candidates: .*diversity: "),
]


@pytest.mark.parametrize(("make", "message"), POLICIES)
def test_what_is_no_policy(make: Callable[[], RecallPolicy], message: str) -> None:
    with pytest.raises(RecallError, match=message):
        make()


def test_a_policy_that_is_none(memory: Memory) -> None:
    for policy in (5, ["default"], b"default"):
        with pytest.raises(RecallError, match="there is no policy"):
            memory.recall("zebra", policy=policy)  # type: ignore[arg-type]
