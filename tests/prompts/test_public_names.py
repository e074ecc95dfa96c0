"""Public modules of the layers: each public name can be imported, and completes at a prompt."""

from __future__ import annotations

import importlib

import pytest

from tests.paths import DOORS


@pytest.mark.parametrize("door", DOORS)
def test_each_public_name_can_be_imported_and_completed(door: str) -> None:
    module = importlib.import_module(door)
    assert module.__all__
    assert set(module.__all__) <= set(dir(module))
    assert "exports" not in dir(module)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def test_the_error_of_an_unknown_name_suggests_a_name() -> None:
    module = importlib.import_module("agentkit.prompts")
    with pytest.raises(AttributeError) as caught:
        _ = module.WrapPromt
    assert caught.value.name == "WrapPromt"
    assert "WrapPrompt" in str(caught.value)


def test_no_two_public_objects_share_a_name() -> None:
    homes: dict[str, set[int]] = {}
    for door in DOORS:
        module = importlib.import_module(door)
        for name in module.__all__:
            homes.setdefault(name, set()).add(id(getattr(module, name)))
    assert sorted(name for name, things in homes.items() if len(things) > 1) == []


def test_the_main_modules_have_few_names_and_submodules_have_all_names() -> None:
    front = importlib.import_module("agentkit")
    assert len(front.__all__) <= 64
    names = importlib.import_module("agentkit.prompts").__all__
    assert len(names) <= 70, (
        f"{len(names)} names: a reader must find the common names on one page; move a rare name to a public submodule"
    )
    for door in ("agentkit.durable", "agentkit.errors", "agentkit.models"):
        owned = {name for name in front.__all__ if getattr(getattr(front, name), "__module__", "").startswith(door)}
        assert owned - {"model"} <= set(importlib.import_module(door).__all__)  # agentkit.models.model is a module
