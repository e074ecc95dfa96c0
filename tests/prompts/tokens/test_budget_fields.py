"""Errors of the fields of sizes and budgets."""

from __future__ import annotations

import pytest

from agentkit.prompts import Budget, PromptError, Size


def test_the_error_names_an_unknown_field() -> None:
    with pytest.raises(PromptError) as caught:
        Size(maxx=3)  # type: ignore[call-arg]
    assert caught.value.name == "maxx"
    with pytest.raises(PromptError) as caught:
        Budget(100, reserved=10)  # type: ignore[call-arg]
    assert caught.value.name == "reserved"


def test_the_error_names_each_field_of_a_size_with_a_wrong_type() -> None:
    with pytest.raises(PromptError) as caught:
        Size(min="few", max=1.5, flex="all", cut=3)  # type: ignore[arg-type]
    assert caught.value.name == "min, max, flex, cut"


def test_a_cut_is_a_name_or_a_function_and_the_default_minimum_is_zero() -> None:
    with pytest.raises(PromptError) as caught:
        Size(cut=3)  # type: ignore[arg-type]
    assert caught.value.name == "cut"
    size = Size(cut=lambda text, tokens: text[:tokens])
    assert (size.min, size.target, size.max, size.priority) == (0, None, None, 0)
