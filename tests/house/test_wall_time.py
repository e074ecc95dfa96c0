"""No test depends on the clock on the wall: on the duration of an action, or on a wait of a few seconds.

A busy machine would fail it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}


def is_clock(node: ast.AST) -> bool:
    """Return True if it reads a clock on the wall; the `loop.time()` of `asyncio` and clocks of processors are not."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr in CLOCKS and ast.unparse(function.value) == "time"
    return isinstance(function, ast.Name) and function.id in CLOCKS - {"time"}


def asserted_times(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of asserts that a difference of times is small. `assert monotonic() < end` ends a loop."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(function))
        read = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and is_clock(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Assert) and any(isinstance(part, ast.Lt | ast.LtE) for part in ast.walk(node)):
                differences = [
                    part for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)
                ]
                sides = [side for part in differences for side in (part.left, part.right)]
                if any(is_clock(side) or (isinstance(side, ast.Name) and side.id in read) for side in sides):
                    yield node.lineno


WAITS = {"communicate", "join", "result", "run", "wait", "wait_for"}
"""Calls that wait for another thread or process: their limit is reached only if the event never happens."""
MARKS = rf"\b({'|'.join(sorted(WAITS))})\(|\(\) \+"
"""Text of every file with such a wait: other files are not parsed."""
ENOUGH = 30
"""Seconds. A wait below one second is a pause, or must expire."""


def short_waits(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of waits for a few seconds only, and of loops that poll for a few seconds only."""
    for node in ast.walk(tree):
        limits: list[ast.expr] = []
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in WAITS:
                limits = [*node.args[-1:], *[one.value for one in node.keywords if one.arg == "timeout"]]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_clock(node.left):
            limits = [node.right]
        for limit in limits:
            if isinstance(limit, ast.Constant) and type(limit.value) in (int, float) and 1 <= limit.value < ENOUGH:
                yield node.lineno


def test_no_test_waits_for_a_few_seconds_only() -> None:
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, text in texts.items()
        if re.search(MARKS, text)
        for line in short_waits(ast.parse(text))
    ]
    assert not found, f"wait for `tests.waiting.LONG`, or with `until` and `eventually`: {found}"


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("assert done.wait(10)", True),
        ("await asyncio.wait_for(done.wait(), 20)", True),
        ("process.communicate(timeout=5)", True),
        ("end = time.monotonic() + 9", True),
        ("done.wait(LONG)", False),
        ("stop.wait(0.01)", False),
        ("subprocess.run(command, timeout=60)", False),
    ],
)
def test_a_short_wait_is_found(line: str, is_found: bool) -> None:
    assert list(short_waits(ast.parse(line))) == [1] * is_found


def test_no_test_asserts_a_wall_time() -> None:
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, text in texts.items()
        if any(clock in text for clock in ("monotonic", "perf_counter", "time.time"))
        for line in asserted_times(ast.parse(text))
    ]
    assert not found, f"assert what happened, or steps that are counted, not how long it took: {found}"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("start = time.monotonic()\n    assert time.monotonic() - start < 2", [3]),
        ("a = perf_counter()\n    b = perf_counter()\n    assert b - a <= 2", [4]),
        ("assert 0 < time.time() - began < 9", [2]),
        ("end = time.monotonic() + 9\n    assert time.monotonic() < end", []),
        ("start = process_time()\n    assert process_time() - start < 2", []),
        ("assert time.monotonic() - start > 2", []),
    ],
)
def test_an_asserted_wall_time_is_found(body: str, lines: list[int]) -> None:
    assert list(asserted_times(ast.parse(f"def test():\n    {body}"))) == lines
