"""Refuses options that do not exist, and says which was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

from agentkit.errors import UnknownOption
from agentkit_prompts.names import nearest, similar

__all__ = ["ELSEWHERE", "check_names", "refusing_unknown"]

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("system", "system_prompt", "instructions", "prompt", "prompts"), "layers"),
    **dict.fromkeys(("output_type", "result_type", "response_model", "response_format"), "output"),
    **dict.fromkeys(("max_steps", "max_turns", "max_iterations", "steps", "timeout"), "limits"),
    "deps_type": "deps",
    "functions": "tools",
    "model_settings": "model",
}
"""What other frameworks call the options of an agent or a chain."""

_SESSION = "a conversation is kept in a session: run(..., session=InMemorySession())"
_OF_SESSIONS = ("checkpointer", "session", "history", "chat_history", "thread_id", "config")
_METHODS = {"invoke": "run_sync", "ainvoke": "run", "astream": "stream", "run_stream": "stream", "batch": "run_sync"}
"""What other frameworks call the methods of an agent or a chain."""

C = TypeVar("C", bound=type)


def check_names(
    where: str, given: Iterable[str], names: Iterable[str], meant: Mapping[str, str] = {}, *, also: str = ""
) -> None:
    """Refuse options that would be ignored.

    Args:
        where: What takes the options; "" where that is clear.
        given: The names of the options that were given.
        names: The names there are.
        meant: Which of them is meant by names that are not like it, such as those of other frameworks.
        also: What else may have been meant.

    Raises:
        UnknownOption: Names all of them.
    """
    known = [*names]
    problems = [f"there is no option {name!r}{_hint(name, known, meant)}" for name in given if name not in known]
    if problems:
        unknown = {name: meant.get(name) or similar(name, known) for name in given if name not in known}
        raise UnknownOption((f"{where}: " if where else "") + "; ".join(problems) + also, unknown)


def _hint(name: str, known: list[str], meant: Mapping[str, str]) -> str:
    from agentkit_prompts.chat_templates.protocol import FIELDS_ELSEWHERE

    if meant.get(name) in known:
        return f"; did you mean {meant[name]!r}?"
    elsewhere = _SESSION if name in _OF_SESSIONS else FIELDS_ELSEWHERE.get(name)
    return nearest(name, known) if elsewhere is None else f"; {elsewhere}"


class _OtherName:
    """The name that a method has in another framework: reading it is an error that names ours.

    A `__getattr__` could say so too, and would make every read of an attribute that there is ten times as slow.
    """

    __slots__ = ("_meant", "_name")

    def __init__(self, name: str, meant: str) -> None:
        self._name = name
        self._meant = meant

    def __get__(self, instance: object, owner: type) -> NoReturn:
        message = f"{owner.__name__!r} object has no attribute {self._name!r}; did you mean {self._meant!r}?"
        raise AttributeError(message, name=self._name, obj=instance)


def _names_there_are(self: object) -> list[str]:
    """Return the attributes that can be read, for completion."""
    return [name for name in object.__dir__(self) if name not in _METHODS]


def refusing_unknown(**meant: str) -> Callable[[C], C]:
    """Have a class refuse keyword arguments that it does not take with an `UnknownOption`.

    Args:
        **meant: See `check_names`.
    """

    def changed(cls: C) -> C:
        init: Any = vars(cls)["__init__"]
        code = init.__code__
        names = dict.fromkeys(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]).keys()

        @wraps(init)
        def refusing(self: Any, *args: Any, **options: Any) -> None:
            if not names >= options.keys():
                check_names(cls.__name__, options, names, meant)
            init(self, *args, **options)

        made: Any = cls
        made.__init__ = refusing  # it takes what the one before took
        for name, method in _METHODS.items():
            if hasattr(cls, method):
                setattr(cls, name, _OtherName(name, method))
        made.__dir__ = _names_there_are
        return cls

    return changed
