"""Runs inside of runs: what an agent that a tool calls owes the run it was called from.

Whoever calls it and however (as a tool, or with `run` and `run_sync` in the code of a tool), its tokens count in the
outer run, and it may use no more than what is left there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import TypeAlias

from agentkit.errors import LimitExceeded
from agentkit.models.model import Usage
from agentkit.run.decisions import Approver, Decision
from agentkit.run.events import Event
from agentkit.run.limits import Limits

__all__ = ["Approval", "Nesting", "current_run"]

Approval: TypeAlias = Approver | Mapping[str, Decision | bool]
"""What decides about calls: a function, or decisions by the ids of the calls."""

_ADVICE = "agents call each other deeper than that; allow more, or give the inner ones fewer tools"


class Nesting:
    """One run, as the runs inside of it see it.

    Raises:
        LimitExceeded: It would be inside of too many runs.
    """

    __slots__ = ("_counted", "_deepest", "_depth", "_inner", "_outer", "_own", "_token", "approve", "emit", "limits")

    limits: Limits
    """What this run may use: its own limits, and no more than what is left of the limits of the runs around it."""

    def __init__(self, limits: Limits, emit: Callable[[Event], None] | None, approve: Approval | None) -> None:
        self.emit = emit
        self.approve = approve
        self._own: list[Usage] = []
        self._inner: list[Usage] = []  # appending is atomic: a tool may run an agent in another thread
        self._counted = 0
        self._token: Token[Nesting | None] | None = None
        self._outer = outer = _current.get()
        self._depth = 0
        self._deepest = limits.nested_runs
        if outer is not None:
            self._depth = outer._depth + 1
            self._deepest = min(outer._deepest, self._depth + limits.nested_runs)
            if self._depth > outer._deepest:
                raise LimitExceeded("nested_runs", outer._deepest, _ADVICE)
            left = outer._left()
            if left is not None and (limits.tokens is None or left < limits.tokens):
                limits = replace(limits, tokens=max(left, 1))
        self.limits = limits

    def __enter__(self) -> Nesting:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _current.reset(self._token)

    def spend(self, usage: Usage) -> None:
        """Count a reply of this run's model, here and in all runs around this one."""
        self._own.append(usage)
        outer = self._outer
        while outer is not None:
            outer._inner.append(usage)
            outer = outer._outer

    def inner_usage(self) -> Usage | None:
        """Return what the runs inside have spent since this was asked last, or None when there were none."""
        if len(self._inner) == self._counted:
            return None
        fresh = self._inner[self._counted :]
        self._counted += len(fresh)
        return sum(fresh, Usage())

    def _left(self) -> int | None:
        """Tokens that this run may still use; `limits` already has what the runs around it had left."""
        if self.limits.tokens is None:
            return None
        used = sum([*self._own, *self._inner], Usage())
        return self.limits.tokens - used.input_tokens - used.output_tokens


_current: ContextVar[Nesting | None] = ContextVar("agentkit_run", default=None)


def current_run() -> Nesting | None:
    """Return the run whose tool is running, or None outside of tools."""
    return _current.get()
