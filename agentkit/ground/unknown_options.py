"""Checks of option names, with errors that suggest valid options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from agentkit.errors import UnknownOption
from agentkit_prompts.hints import explain_arguments, option_hint
from agentkit_prompts.options import unknown_option

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("system", "system_prompt", "instructions", "prompt", "prompts"), "layers"),
    **dict.fromkeys(("output_type", "result_type", "response_model", "response_format"), "output"),
    **dict.fromkeys(("steps", "timeout", "on_tool_error"), "limits"),
    "deps_type": "deps",
    "functions": "tools",
    "model_settings": "model",
}
"""Names of the options of `Chain`, by their names in other frameworks."""
AGENT_ELSEWHERE: Mapping[str, str] = {
    **ELSEWHERE,
    **dict.fromkeys(("system", "system_prompt", "system_message", "prompt", "prompts"), "instructions"),
    "instructions": "instructions",
    "model_settings": "settings",
}
"""Names of the options of `Agent`, by their names in other frameworks."""

_SESSION_ADVICE = "a session stores the conversation: run(..., session=Session('name'))"
_SESSION_OPTIONS = ("checkpointer", "session", "history", "chat_history", "thread_id", "config")
C = TypeVar("C", bound=type)


def check_names(
    where: str,
    passed: Iterable[str],
    names: Iterable[str],
    meant: Mapping[str, str] = {},
    *,
    also: str = "",
    reasons: Mapping[str, str] = {},
) -> None:
    """Refuse unknown options, which would be ignored.

    Args:
        where: Name of the method or class with the options.
        passed: Names of the passed options.
        names: Names of the valid options.
        meant: Names of valid options, by their names in other frameworks.
        also: End of the message.
        reasons: Reasons why options of other methods are invalid here, by their names.

    Raises:
        UnknownOption: The error lists all unknown options.
    """
    error = _unknown_names(where, passed, names, meant, also, reasons)
    if error is not None:
        raise error


def _unknown_names(
    where: str,
    passed: Iterable[str],
    names: Iterable[str],
    meant: Mapping[str, str],
    also: str,
    reasons: Mapping[str, str],
) -> UnknownOption | None:
    """Return the error of `check_names`, or None if all options are valid."""
    valid = list(names)
    unknown: dict[str, str | None] = {}
    problems: list[str] = []
    for name in passed:
        if name not in valid:
            text, unknown[name] = _problem(where, name, valid, meant, reasons)
            problems.append(text)
    if not problems:
        return None
    return UnknownOption(f"{where}: {'; '.join(problems)}{also}", unknown)


def _problem(
    where: str, name: str, valid: list[str], meant: Mapping[str, str], reasons: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the problem of an unknown option, and the suggested option; None without a suggestion."""
    from agentkit_prompts.chat_templates.protocol import FIELDS_ELSEWHERE

    text, option = unknown_option(where, name, valid, meant)
    if meant.get(name) in valid or option_hint(where, name) is not None:
        return text, option
    advice = reasons.get(name) or FIELDS_ELSEWHERE.get(name)
    if name in _SESSION_OPTIONS and name not in reasons:
        advice = _SESSION_ADVICE
    if advice is None:
        return text, option
    return f"unknown option {name!r}; {advice}", None


def refusing_unknown(**meant: str) -> Callable[[C], C]:
    """Return a decorator of classes: unknown keyword arguments of the constructor raise `UnknownOption`.

    Args:
        **meant: See `check_names`.
    """

    def decorate(cls: C) -> C:
        # As `Any`, so that type checkers still see the original constructor.
        target: Any = cls
        init = target.__init__
        code = init.__code__
        names = list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

        def explain(_: TypeError, args: Sequence[Any], options: Mapping[str, Any]) -> UnknownOption | None:
            return _unknown_names(cls.__name__, options, names, meant, also="", reasons={})

        target.__init__ = explain_arguments(init, explain)
        return cls

    return decorate
