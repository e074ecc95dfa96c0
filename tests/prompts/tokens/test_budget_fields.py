"""A mistyped field of a size or a budget says which one was meant."""

from __future__ import annotations

import pytest

from agentkit.prompts import Budget, PromptError, Size


def test_a_mistyped_field_says_which_one_was_meant() -> None:
    with pytest.raises(PromptError) as caught:
        Size(maxx=3)  # type: ignore[call-arg]
    assert caught.value.name == "maxx"
    with pytest.raises(PromptError) as caught:
        Budget(100, reserved=10)  # type: ignore[call-arg]
    assert caught.value.name == "reserved"


def test_each_field_of_a_size_with_another_type_is_named() -> None:
    with pytest.raises(PromptError) as caught:
        Size(min="few", max=1.5, flex="all", cut=3)  # type: ignore[arg-type]
    assert caught.value.name == "min, max, flex, cut"


def test_a_cut_is_a_name_or_a_function_and_no_prompt_has_a_minimum_of_its_own() -> None:
    with pytest.raises(PromptError) as caught:
        Size(cut=3)  # type: ignore[arg-type]
    assert caught.value.name == "cut"
    size = Size(cut=lambda text, tokens: text[:tokens])
    assert (size.min, size.target, size.max, size.priority) == (0, None, None, 0)
