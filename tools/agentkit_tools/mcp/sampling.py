"""`Sampling`: an agent that answers the requests of an MCP server for a model, with limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import check_types
from agentkit_tools.calling.result_content import to_content
from agentkit_tools.errors import ToolDefinitionError, ToolError
from agentkit_tools.form import QUESTION_ID
from agentkit_tools.mcp.content import to_content_of_blocks

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, SamplingMessage

    from agentkit_tools.tool_context import RunState

_NAME = "answer_with_model"
_MAX_CHARS = 100_000
"""Maximum characters of a request, as JSON."""


class AgentLike(Protocol):
    """An agent."""

    async def run(self, user_input: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """Permission for a server to use a model during its calls.

    A request of a server is a run of `agent` inside of the run that calls the tool, so that its usage and its limits
    are part of that run. The agent needs no tools: the text of the request is written by the server.

    Raises:
        ToolDefinitionError: A field is invalid.
    """

    agent: AgentLike
    """Agent that answers, such as `Agent(model, "")`."""
    requests: int = 5
    """Maximum number of requests of a call."""
    tokens: int = 20_000
    """Number of tokens after which further requests of a call are refused."""
    approval: Literal["always", "never"] = "always"
    """`always`: a person approves each request, like a call that needs approval."""

    def __post_init__(self) -> None:
        check_types(
            ToolDefinitionError,
            "Sampling",
            requests=(self.requests, int, "a number of requests"),
            tokens=(self.tokens, int, "a number of tokens"),
        )
        problems = []
        if not callable(getattr(self.agent, "run", None)):
            problems.append(f"agent: expected an agent, got {type(self.agent).__name__}")
        for name in ("requests", "tokens"):
            if getattr(self, name) < 1:
                problems.append(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.approval not in ("always", "never"):
            problems.append(f"approval: expected 'always' or 'never', got {self.approval!r:.40}")
        if problems:
            raise ToolDefinitionError(
                f"Sampling: {'; '.join(problems)}", names=[problem.partition(":")[0] for problem in problems]
            )


class SampledCall:
    """The requests of a server during one call of its tool."""

    def __init__(self, sampling: Sampling, server: str) -> None:
        self._sampling = sampling
        self._server = server
        self._requests = 0
        self._tokens = 0

    async def answer(
        self, params: CreateMessageRequestParams, run: RunState, call_id: str, *, can_repeat: bool
    ) -> Mapping[str, Any]:
        """Return the fields of a `CreateMessageResult`.

        Raises:
            ToolError: A limit is reached, the request was denied or changed, or is not supported, or the model failed.
        """
        sampling = self._sampling
        self._requests += 1
        if self._requests > sampling.requests:
            raise ToolError(f"the limit of {sampling.requests} requests of a call is reached")
        if self._tokens >= sampling.tokens:
            raise ToolError(f"the limit of {sampling.tokens:,} tokens of a call is reached")
        messages = [_message(message) for message in params.messages]
        if not messages or messages[-1].role != "user":
            raise ToolError("the last message must be of the user")
        # The whole text is shown, because the whole text is sent.
        texts = [{"role": message.role, "text": message.text} for message in messages]
        arguments = {"server": self._server, "system": params.system_prompt or "", "messages": texts}
        text = json.dumps(arguments)
        if len(text) > _MAX_CHARS:
            raise ToolError(f"the request has {len(text):,} characters, {_MAX_CHARS:,} are allowed")
        if sampling.approval == "always":
            digest = sha256(text.encode()).hexdigest()[:8]
            call = ToolCall(f"{QUESTION_ID}{digest}-{self._requests}", _NAME, text)
            approved = await run.decide(call_id, call, can_repeat=can_repeat)
            if approved is None:
                raise ToolError("the request was denied")
            # The text of a request is written by the server: a person approves it as it is, or denies it.
            if approved and dict(approved) != arguments:
                raise ToolError("the request was denied, because its text was changed")
        *before, last = messages
        if params.system_prompt:
            # Not a system prompt: the server wrote it.
            before.insert(0, Message("user", params.system_prompt))
        context = PromptContext(user_input=UserInput(last.content), conversation=tuple(before))
        try:
            result = await sampling.agent.run(context)
        except Exception as error:
            # The server receives no details.
            raise ToolError(f"the model failed: {type(error).__name__}") from error
        self._tokens += result.usage.input_tokens + result.usage.output_tokens
        return {
            "role": "assistant",
            "content": {"type": "text", "text": str(to_content(result.output))},
            "model": str(getattr(getattr(sampling.agent, "model", None), "name", "agentkit")),
            "stopReason": "endTurn",
        }


def _message(message: SamplingMessage) -> Message:
    """Return a message of a server. Calls of its tools are refused: they are not sent to the model."""
    blocks: Any = message.content_as_list
    if any(block.type.startswith("tool") for block in blocks):
        raise ToolError("calls of tools in messages are not supported")
    return Message(message.role, to_content_of_blocks(blocks))
