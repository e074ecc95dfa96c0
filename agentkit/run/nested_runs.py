"""Runs inside of runs: what an agent that a tool calls owes the run it was called from.

Whoever calls it and however (as a tool, or with `run` and `run_sync` in the code of a tool), its tokens count in the
outer run, and it may use no more than what is left there.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from agentkit.errors import LimitExceeded
from agentkit.models.model import Usage
from agentkit.run.decisions import Approver, Decisions
from agentkit.run.limits import Limits
from agentkit.run.listening import Emit
from agentkit_prompts.composition.composition import Composition

__all__ = ["Nesting", "current_run"]

_ADVICE = "agents call each other deeper than that; allow more, or give the inner ones fewer tools"


class Nesting:
    """One run, as the runs inside of it see it.

    Raises:
        LimitExceeded: It would be inside of too many runs.
    """

    __slots__ = (
        "_around",
        "_counted",
        "_deepest",
        "_inner",
        "_is_limited",
        "_reserved",
        "_token",
        "_used",
        "approve",
        "emit",
        "limits",
    )

    _is_limited: bool
    """Whether this run or one around it has a limit of tokens."""

    def __init__(self, limits: Limits, emit: Emit | None, approve: Approver | Decisions | None) -> None:
        self.emit = emit
        self.approve = approve
        self._used = self._reserved = 0
        self._inner: list[Usage] = []  # appending is atomic: a tool may run an agent in another thread
        self._counted = 0
        self._token: Token[Nesting | None] | None = None
        outer = _current.get()
        self._around: tuple[Nesting, ...] = () if outer is None else (outer, *outer._around)
        self._deepest = limits.nested_runs
        if outer is not None:
            depth = len(self._around)
            self._deepest = min(outer._deepest, depth + limits.nested_runs)
            if depth > outer._deepest:
                raise LimitExceeded("nested_runs", outer._deepest, _ADVICE)
        self.limits = limits
        self._is_limited = limits.tokens is not None or (outer is not None and outer._is_limited)

    def __enter__(self) -> Nesting:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _current.reset(self._token)

    def reserve(self, composition: Composition) -> int:
        """Set aside what sending a composition takes, here and in all runs around this one; return the tokens.

        A single prompt may take more than is left, which its reply then says; not while others are on their way.

        Raises:
            LimitExceeded: One of these runs has not so many left.
        """
        if not self._is_limited:
            return 0
        needed = composition.tokens
        runs = (self, *self._around)
        for run in runs:
            allowed = run.limits.tokens
            if allowed is not None and run._used + (run._reserved and run._reserved + needed) > allowed:
                advice = f"other runs use what is left, and the next prompt takes about {needed}; allow more"
                raise LimitExceeded("tokens", allowed, advice)
        for run in runs:
            run._reserved += needed
        return needed

    def spend(self, usage: Usage, reserved: int) -> None:
        """Count a reply of this run's model, here and in all runs around this one, in place of what was set aside."""
        used = usage.input_tokens + usage.output_tokens
        self._reserved -= reserved
        self._used += used
        for run in self._around:
            run._reserved -= reserved
            run._used += used
            run._inner.append(usage)

    def inner_usage(self) -> Usage | None:
        """Return what the runs inside have spent since this was asked last, or None when there were none."""
        if len(self._inner) == self._counted:
            return None
        fresh = self._inner[self._counted :]
        self._counted += len(fresh)
        return sum(fresh, Usage())


_current: ContextVar[Nesting | None] = ContextVar("agentkit_run", default=None)


def current_run() -> Nesting | None:
    """Return the run whose tool is running, or None outside of tools."""
    return _current.get()
