"""Check of errors about wrong calls: the message names the right call, and the right call works."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def check_message(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    """Make a wrong call: it must raise the error, whose text contains the message."""
    with pytest.raises(error) as caught:
        wrong()
    assert message in str(caught.value)


def check_right_way(
    wrong: Callable[[], object], error: type[Exception], message: str, right: Callable[[], object]
) -> None:
    """Make a wrong call, then the call that its error names: the result must be true."""
    check_message(wrong, error, message)
    assert right()
