"""A mistyped field of a size or a budget says which one was meant."""

from __future__ import annotations

import pytest

from agentkit.prompts import Budget, PromptError, Size


def test_a_mistyped_field_says_which_one_was_meant() -> None:
    with pytest.raises(PromptError, match=r"Size: unknown field 'maxx' \(did you mean 'max'\?\)"):
        Size(maxx=3)  # type: ignore[call-arg]
    with pytest.raises(PromptError, match=r"Budget: unknown field 'reserved' \(did you mean 'reserve'\?\)"):
        Budget(100, reserved=10)  # type: ignore[call-arg]
