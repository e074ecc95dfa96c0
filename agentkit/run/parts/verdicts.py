"""Verdicts of guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field


@dataclass(frozen=True, slots=True)
class Pass:
    """The run continues; a function can return None instead."""

    action: Literal["pass"] = field(default="pass", kw_only=True)


@dataclass(frozen=True, slots=True)
class Replace:
    """The run continues with another value.

    `value` is text, or the arguments of a tool call as a mapping. A text for a tool call denies the call: it does not
    run, and the model receives the text as the reason.
    """

    value: str | Mapping[str, Any]
    action: Literal["replace"] = field(default="replace", kw_only=True)


@dataclass(frozen=True, slots=True)
class Ask:
    """A person decides, as for a tool call that needs approval: the run pauses, or calls `approve`."""

    reason: str = ""
    action: Literal["ask"] = field(default="ask", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stop:
    """The run ends with a `GuardStopped`."""

    reason: str = ""
    action: Literal["stop"] = field(default="stop", kw_only=True)


Verdict: TypeAlias = Annotated[Pass | Replace | Ask | Stop, Field(discriminator="action")]
"""Verdict of a guard, and the output type of an agent that is a guard."""

PASS = Pass()
