"""Errors can be sent to another process: all classes can be pickled."""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType

import pytest

from agentkit import errors as runtime
from agentkit.models import model_errors
from agentkit_memory import errors as memory
from agentkit_prompts import errors as prompts
from agentkit_tools import errors as tools


@pytest.mark.parametrize("module", [runtime, model_errors, memory, prompts, tools], ids=lambda module: module.__name__)
def test_every_error_can_be_pickled_with_its_attributes(module: ModuleType) -> None:
    kinds = [
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == module.__name__
    ]
    assert kinds
    for kind in kinds:
        error = kind.__new__(kind)
        error.args = ("what went wrong",)
        error.messages = ("kept",)
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), copied.messages) == (kind, str(error), ("kept",))


def test_errors_with_several_arguments_keep_them() -> None:
    missing = pickle.loads(pickle.dumps(prompts.KwargsError({"root": ("missing", ("system[0]",))})))
    assert (
        "root" in str(missing)
        and missing.problems == prompts.KwargsError({"root": ("missing", ("system[0]",))}).problems
    )
    moved = pickle.loads(pickle.dumps(memory.HeadMoved("s", 1, 2)))
    assert str(moved) == str(memory.HeadMoved("s", 1, 2))
