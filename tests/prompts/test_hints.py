"""Errors about names of other libraries contain the right name."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

import agentkit
import agentkit.prompts
from agentkit.prompts import Message
from agentkit_prompts.hint_rows import NAMES
from agentkit_prompts.hints import DOORS, Hinted, with_option_hints
from tests.paths import DOORS as PROMISED


def test_hints_look_into_all_modules_that_users_import_from() -> None:
    assert sorted(DOORS) == PROMISED


def test_the_names_in_hints_exist() -> None:
    missing = []
    for text in NAMES.values():
        for path in re.findall(r"\bagentkit(?:\.\w+)+", text):
            module, _, name = path.rpartition(".")
            if not hasattr(import_module(module), name):
                missing.append(path)
    assert not missing


def test_a_name_of_another_library_leads_to_ours_in_an_import_statement_too() -> None:
    with pytest.raises(ImportError, match=r"use agentkit\.ToolContext"):
        exec("from agentkit import RunContext")


def test_a_name_of_a_sister_module_names_the_module() -> None:
    with pytest.raises(ImportError, match=r"import it from agentkit$"):
        exec("from agentkit.prompts import Limits")
    with pytest.raises(ImportError, match=r"import it from agentkit\.prompts$"):
        exec("from agentkit import Image")


def test_names_without_a_hint_are_missing_attributes() -> None:
    assert not hasattr(agentkit, "Nothing")
    assert not hasattr(agentkit, "__wrapped__")
    exec("from agentkit.prompts import evaluation")


class Shop(metaclass=Hinted):
    @property
    def broken(self) -> int:
        raise AttributeError("inside of the property")


def test_attributes_without_a_hint_raise_the_error_of_python() -> None:
    assert not hasattr(Shop(), "price") and not hasattr(Shop, "price")
    with pytest.raises(AttributeError, match="inside of the property"):
        _ = Shop().broken


def test_a_function_without_a_hint_raises_the_error_of_python() -> None:
    @with_option_hints
    def recall(query: str, *, limit: int = 3) -> int:
        return limit

    assert recall("a", limit=4) == 4
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        recall("a", nothing=1)  # type: ignore[call-arg]


def test_a_missing_attribute_of_a_message_has_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"use Message\('user', text\)"):
        _ = Message.user  # type: ignore[attr-defined]
