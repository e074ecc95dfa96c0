"""`collected`: many cases in one test, which fails at the end with all the cases that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["collected"]


@contextmanager
def collected(failures: list[str], *case: object) -> Iterator[None]:
    """Add what the block raises to `failures`, with the case that it is about."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        shown = ", ".join([f"{one!r:.80}" for one in case])
        failures.append(f"{shown}: {type(error).__name__}: {error}")
