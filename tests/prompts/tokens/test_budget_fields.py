"""A mistyped field of a size or a budget says which one was meant."""

from __future__ import annotations

import pytest

from agentkit.prompts import Budget, PromptError, Size


def test_a_mistyped_field_says_which_one_was_meant() -> None:
    with pytest.raises(PromptError, match=r"Size: unknown field 'maxx' \(did you mean 'max'\?\)"):
        Size(maxx=3)  # type: ignore[call-arg]
    with pytest.raises(PromptError, match=r"Budget: unknown field 'reserved' \(did you mean 'reserve'\?\)"):
        Budget(100, reserved=10)  # type: ignore[call-arg]


def test_a_cut_is_a_name_or_a_function_and_no_prompt_has_a_minimum_of_its_own() -> None:
    with pytest.raises(PromptError, match="Size: cut must be a name or a callable, got 3"):
        Size(cut=3)  # type: ignore[arg-type]
    size = Size(cut=lambda text, tokens: text[:tokens])
    assert (size.min, size.target, size.max, size.priority) == (0, None, None, 0)
