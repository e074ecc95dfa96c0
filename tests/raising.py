"""`raises`: expects an error of a class with some attributes, with any wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

E = TypeVar("E", bound=BaseException)


@contextmanager
def raises(kind: type[E] | tuple[type[E], ...], /, **attributes: Any) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of a class, whose attributes have these values."""
    with pytest.raises(kind) as caught:
        yield caught
    found = {name: getattr(caught.value, name) for name in attributes}
    if found != attributes:
        raise AssertionError(f"expected {attributes}, got {found}: {caught.value!r}")
