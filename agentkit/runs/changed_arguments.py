"""Check of the arguments with which a person replaces the arguments of a waiting call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from agentkit.run.parts.decisions import invalid_arguments
from agentkit.runs.version_rows import tool_parameters
from agentkit_tools.calling.arguments import ToolArguments
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.errors import ToolArgumentError
from agentkit_tools.schemas.argument_reader import JsonArguments, named_reader


def check_changed_arguments(
    connection: sa.Connection, run_id: str, tools: Mapping[str, str], arguments: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check changed arguments with the schema of the tool that is stored with the version of the run.

    The arguments of other calls are checked when the call runs: calls of inner agents, answers to forms, calls of tools
    that a run creates, and calls of strict tools.

    Args:
        connection: The transaction.
        run_id: The run.
        tools: Names of the tools by the ids of the waiting calls.
        arguments: Changed arguments by the ids of calls.

    Raises:
        ApprovalError: Arguments are invalid; the error lists all problems.
    """
    problems: list[str] = []
    for call, values in arguments.items():
        tool = tools.get(call)
        if tool is None or "/" in call:
            continue
        parameters = tool_parameters(connection, run_id, tool)
        if parameters is not None:
            problems += [f"{tool} ({call}): {problem}" for problem in _argument_problems(tool, parameters, values)]
    if problems:
        raise invalid_arguments(run_id, problems, ", ".join(arguments))


def _argument_problems(tool: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return the problems of arguments that do not match the JSON Schema of a tool."""
    reader = ToolArguments(named_reader(JsonArguments(parameters).reader(), parameters), parameters)
    try:
        reader.read(tool, json.dumps(dict(arguments)), ToolPolicy())
    except ToolArgumentError as error:
        return [str(problem) for problem in error.problems]
    return []
