"""Wrong types in constructors are typed errors: no public name raises an internal exception of Python."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

import agentkit
import agentkit.agent_files
import agentkit.durable
import agentkit.memory
import agentkit.memory.recall
import agentkit.models
import agentkit.observing
import agentkit.prompts
import agentkit.prompts.example_selectors
import agentkit.server
import agentkit.tools
from agentkit.errors import AgentDefinitionError
from agentkit.memory import EmbedderError, OpenAIEmbedder
from agentkit.prompts import PromptError, Template
from agentkit.prompts.example_selectors import KeywordSelector, LengthSelector, VectorSelector
from agentkit.tools import ToolDefinitionError, file_tools

WRONG: list[Any] = [5, "x", None, object(), [1], {"a": 1}, b"x", (), "", float("nan"), -1, [None], {"x"}]
MADE_BY_THE_LIBRARY = {
    *("Composition", "LayerTable", "Memory", "Observation", "Pool", "Recall", "Rendered", "StoredSession", "Tool"),
    "unknown_tool",
    "Url",  # errors of pydantic
}
"""Classes of results and of internal objects, which users do not construct."""
SERVERS = {"mcp_server", "serve_mcp"}
"""Functions that do not end; see the tests of the server."""

ROOMS = (
    agentkit,
    agentkit.agent_files,
    agentkit.durable,
    agentkit.memory,
    agentkit.memory.recall,
    agentkit.models,
    agentkit.observing,
    agentkit.prompts,
    agentkit.prompts.example_selectors,
    agentkit.server,
    agentkit.tools,
)


def public() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for room in ROOMS:
        for name in sorted(room.__all__):
            found = getattr(room, name)
            is_error = inspect.isclass(found) and issubclass(found, BaseException)
            if not (inspect.isclass(found) or inspect.isfunction(found)) or is_error or inspect.isabstract(found):
                continue
            if id(found) not in seen and name not in MADE_BY_THE_LIBRARY | SERVERS:
                seen.add(id(found))
                yield name, found


PUBLIC = dict(public())
AGENT = agentkit.Agent(agentkit.ScriptedModel([]), memory=lambda query: [])


def raw_errors(name: str) -> list[str]:
    """Pass values of wrong types for every argument of a public callable; return exceptions of other libraries."""
    made = PUBLIC[name]
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return []
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    raw: list[str] = []
    for tried in named:
        for value in WRONG:
            args: list[Any] = []
            keywords: dict[str, Any] = {}
            for one in named:
                if one is not tried and one.default is not one.empty:
                    continue
                given = value if one is tried else "x"
                if one.kind == one.POSITIONAL_ONLY:
                    args.append(given)
                else:
                    keywords[one.name] = given
            try:
                found = made(*args, **keywords)
                if inspect.iscoroutine(found):
                    found.close()
                elif isinstance(found, agentkit.observing.Observation):
                    found.end()
            except Exception as error:
                is_ours = type(error).__module__.startswith("agentkit") or isinstance(error, ValidationError)
                if not is_ours:
                    raw.append(f"{name}({tried.name}={value!r}): {type(error).__name__}: {error}")
    return raw


def test_a_wrong_type_is_a_typed_error_or_accepted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [error for name in PUBLIC for error in raw_errors(name)] == []


def test_most_public_names_are_tested() -> None:
    assert len(PUBLIC) > 150


@pytest.mark.parametrize(
    ("make", "error", "argument"),
    [
        (lambda: Template("x", places=5), PromptError, "places"),  # type: ignore[arg-type]
        (lambda: Template(5, file=7), PromptError, "file"),  # type: ignore[arg-type]
        (lambda: Template("x", places={"": "a"}), PromptError, "places"),  # type: ignore[dict-item]
        (lambda: agentkit.ScriptedModel("x"), AgentDefinitionError, "ScriptedModel"),
        (lambda: agentkit.ScriptedModel(5), AgentDefinitionError, "replies"),  # type: ignore[arg-type]
        (lambda: agentkit.Agent(agentkit.ScriptedModel), AgentDefinitionError, "model"),  # type: ignore[call-overload]
        (lambda: AGENT.with_changes(model=agentkit.ScriptedModel), AgentDefinitionError, "model"),  # type: ignore[typeddict-item]
        (lambda: AGENT.with_changes(tools="look"), ToolDefinitionError, "tools"),  # type: ignore[typeddict-item]
        (lambda: AGENT.with_changes(tools={"look": len}), ToolDefinitionError, "tools"),  # type: ignore[typeddict-item]
        (lambda: AGENT.with_changes(recall=5), AgentDefinitionError, "recall"),  # type: ignore[typeddict-item]
        (
            lambda: AGENT.with_changes(compaction=agentkit.Summarise(agentkit.ScriptedModel, tokens=9)),
            AgentDefinitionError,
            "compaction",
        ),  # type: ignore[arg-type]
        (lambda: agentkit.RecallOptions(limit="x", roles="y"), AgentDefinitionError, "roles"),  # type: ignore[arg-type]
        (lambda: agentkit.RecallOptions(limit=0), AgentDefinitionError, "limit"),
        (lambda: VectorSelector(5), PromptError, "embedder"),  # type: ignore[arg-type]
        (lambda: LengthSelector(5, counter=len), PromptError, "counter"),  # type: ignore[arg-type]
        (lambda: KeywordSelector(tokenize="x"), PromptError, "tokenize"),  # type: ignore[arg-type]
        (lambda: OpenAIEmbedder(5, dimensions="x"), EmbedderError, "dimensions"),  # type: ignore[arg-type]
        (lambda: file_tools(5), ToolDefinitionError, "root"),  # type: ignore[arg-type]
    ],
)
def test_the_error_names_the_argument(make: Any, error: type[Exception], argument: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert argument in str(caught.value)


def test_a_value_that_may_be_a_secret_is_in_no_error() -> None:
    key = "sk-secret-9f9f9f"
    for options in ({"api_key": [key]}, {"api_key": key.encode()}, {"base_url": [key]}, {"settings": key}):
        with pytest.raises(AgentDefinitionError) as caught:
            agentkit.OpenAIModel("m", **options)  # type: ignore[arg-type]
        assert key not in str(caught.value)
