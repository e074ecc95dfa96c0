"""Whether the `deps` of a run are what its tools need."""

from __future__ import annotations

from collections.abc import Iterable

from agentkit.errors import DepsMismatch
from agentkit_tools.tool import Tool

__all__ = ["check_deps"]


def check_deps(tools: Iterable[Tool], deps: object) -> None:
    """Refuse `deps` that tools could not work with.

    Raises:
        DepsMismatch: Names all of these tools.
    """
    if problems := [problem for tool in tools if tool.deps_types and (problem := tool.deps_problem(deps))]:
        raise DepsMismatch(problems)
