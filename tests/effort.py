"""The number of cases of laws and campaigns: a few by default, all with `--all`, as in CI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def tries(usual: int, full: int) -> int:
    """Return the number of attempts in this run of the tests."""
    return full if os.environ.get("AGENTKIT_ALL_TESTS") else usual


def spread(values: Iterable[Any], every: int) -> list[Any]:
    """Return the values of a parametrised test: all with `--all`, and each `every`-th value by default."""
    made = [value if isinstance(value, ParameterSet) else pytest.param(*_each(value)) for value in values]
    return [
        one if at % every == 0 else one._replace(marks=[*one.marks, pytest.mark.long]) for at, one in enumerate(made)
    ]


def some(values: Iterable[Any], every: int) -> list[Any]:
    """Return the values of `spread` in this run of the tests, for a loop in a test."""
    return [one.values[0] for one in spread(values, every) if tries(0, 1) or not one.marks]


def thinned(values: Sequence[Any], every: int = 2) -> list[Any]:
    """Return the first of each `every` values; with `--fresh`, all values, for which CI has no time."""
    return list(values) if os.environ.get("AGENTKIT_FRESH_TESTS") else list(values[::every])


def unless_fresh(usual: int, fresh: int) -> int:
    """Return the number of attempts in this run of the tests: `fresh` only with `--fresh`."""
    return fresh if os.environ.get("AGENTKIT_FRESH_TESTS") else usual


def paired(first: Iterable[Any], second: Sequence[Any], of: int = 1) -> list[Any]:
    """Return every pair of two lists: by default each of the first is paired with `of` of the second, in turn."""
    return [
        pytest.param(*_each(one), *_each(other), marks=[] if (at - beside) % len(second) < of else pytest.mark.long)
        for at, one in enumerate(first)
        for beside, other in enumerate(second)
    ]


def pairs(first: Iterable[Any], second: Sequence[Any], of: int = 1) -> list[tuple[Any, ...]]:
    """Return the pairs of `paired` in this run of the tests, for a loop in a test."""
    return [tuple(one.values) for one in paired(first, second, of) if tries(0, 1) or not one.marks]


def _each(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)
