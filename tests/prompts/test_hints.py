"""Errors about names of other libraries contain the right name."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import agentkit
import agentkit.durable
import agentkit.memory
import agentkit.prompts
import agentkit.server
from agentkit.prompts import ContextError, Message
from agentkit.run.engine.run_options import CHANGES, RESUME, RUN, MapOptions, ScheduleOptions, StartOptions
from agentkit_prompts.hint_calls import OPTIONS
from agentkit_prompts.hint_rows import ATTRIBUTES, NAMES
from agentkit_prompts.hints import DOORS, Hinted, with_option_hints
from tests.paths import DOORS as PROMISED


def test_hints_cover_all_public_modules() -> None:
    assert sorted(DOORS) == PROMISED


def test_the_names_in_hints_exist() -> None:
    missing = []
    for text in NAMES.values():
        for path in re.findall(r"\bagentkit(?:\.\w+)+", text):
            module, _, name = path.rpartition(".")
            if not hasattr(import_module(module), name) and find_spec(path) is None:
                missing.append(path)
    assert not missing


def test_an_import_of_a_name_of_another_library_suggests_our_name() -> None:
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
    for text in ("", "tools.errors", "nothing.at_all", "../agent"):
        assert not hasattr(agentkit, text)
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


OWNERS: dict[str, Any] = {
    "agent": agentkit.Agent,
    "handle": agentkit.durable.RunHandle,
    "memory": agentkit.Memory,
    "result": agentkit.RunResult,
    "runs": agentkit.Runs,
    "session": agentkit.Session,
}
"""Name of a value in a hint -> its class."""
CLASSES: dict[str, Any] = {
    **{owner.__name__: owner for owner in OWNERS.values()},
    "Composition": agentkit.Composition,
    "Journal": agentkit.Journal,
    "Message": Message,
    "Paused": agentkit.Paused,
    "RunRecord": agentkit.durable.RunRecord,
    "Server": agentkit.server.Server,
    "StoredSession": agentkit.memory.StoredSession,
}


def test_rows_of_attributes_belong_to_classes_that_do_not_have_them() -> None:
    wrong = []
    for name, rows in ATTRIBUTES.items():
        if name not in CLASSES:
            continue
        cls = CLASSES[name]
        wrong += [f"{name}.{attribute}" for attribute in rows if hasattr(cls, attribute)]
        for attribute, text in rows.items():
            with pytest.raises(AttributeError, match=re.escape(text)):
                getattr(cls, attribute)
    assert not wrong


def test_each_hint_leads_to_a_member_that_exists() -> None:
    texts = [text for rows in (*ATTRIBUTES.values(), *OPTIONS.values()) for text in rows.values()]
    wrong = []
    for text in texts:
        for value, member in re.findall(r"(?<![.\w])(agent|handle|memory|result|runs|session)\.(\w+)", text):
            if not hasattr(OWNERS[value], member):
                wrong.append(text)
        for path in re.findall(r"\bagentkit(?:\.\w+)+", text):
            module, _, name = path.rpartition(".")
            if not hasattr(import_module(module), name) and find_spec(path) is None:
                wrong.append(text)
    assert not wrong


def test_hints_of_options_name_options() -> None:
    parameters: dict[str, set[str]] = {
        "Agent": {*inspect.signature(agentkit.Agent.__init__).parameters},
        "Memory.recall": {*inspect.signature(agentkit.Memory.recall).parameters},
        "run": {*RUN},
        "resume": {*RESUME},
        "with_changes": {*CHANGES},
        "override": {*CHANGES},
        "start": {*ScheduleOptions.__annotations__, *StartOptions.__annotations__},
        "map": {*MapOptions.__annotations__},
    }
    wrong = []
    for where, names in parameters.items():
        for name, text in OPTIONS[where].items():
            match = re.match(r"(\w+)=", text)
            if name in names or (match is not None and match[1] not in names):
                wrong.append(f"{where}: {name}: {text}")
    assert not wrong


def test_a_list_of_messages_is_the_history_of_a_run() -> None:
    agent = agentkit.Agent(agentkit.ScriptedModel(["Hello."]))
    for messages in ([{"role": "user", "content": "Hi"}], [Message("user", "Hi")]):
        with pytest.raises(ContextError, match="history="):
            agent.run_sync(messages)  # type: ignore[arg-type]


def test_the_module_of_tests_names_our_models() -> None:
    with pytest.raises(ImportError, match=r"use agentkit\.testing\.ScriptedModel"):
        exec("from agentkit.testing import TestModel")
