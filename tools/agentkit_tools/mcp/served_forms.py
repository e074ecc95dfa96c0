"""`ServedForms`: forms of a tool of an MCP server, which the person of the client fills in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.errors import ToolError, describe_error
from agentkit_tools.form import is_form

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams, InputRequiredResult

_MAX_STATE = 200_000
"""Maximum characters of the answers that a client repeats."""


class ServedForms:
    """Forms of one call.

    A client of the newer protocol receives a form as the result of the call, and sends the call again with its answer
    and all earlier answers. An older client answers during the call. Answers are not secret: they are of the client.

    Raises:
        MCPError: The repeated answers are invalid.
    """

    def __init__(self, ctx: Any, params: CallToolRequestParams) -> None:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        self._ctx = ctx
        self._is_modern = ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._answers = _earlier_answers(params)
        self._waiting: dict[str, Any] = {}

    async def decide(self, form: ToolCall, *, can_repeat: bool) -> Mapping[str, Any] | None:
        """Return the answer of the person of the client; None if the person declines, or cannot be asked.

        Raises:
            ToolError: The client receives the form, and sends the call again.
        """
        from mcp_types import ElicitRequestFormParams

        if not is_form(form) or not self._client_has_forms:
            return None
        arguments = json.loads(form.arguments)
        question = "\n".join([arguments["question"], *arguments.get("problems", ())])
        schema = {"type": "object", "properties": arguments["fields"], "required": arguments["required"]}
        try:
            params = ElicitRequestFormParams(message=question, requested_schema=schema)
        except ValueError as error:
            raise ToolError(f"the client cannot show the form: {describe_error(error)}") from error
        answer = self._answers.get(form.id)
        if answer is None and self._is_modern:
            if not can_repeat:
                return None
            self._waiting[form.id] = params
            raise ToolError("the client was asked to fill in a form")
        if answer is None:
            result = await self._ctx.session.elicit_form(
                params.message, params.requested_schema, related_request_id=self._ctx.request_id
            )
            answer = {"action": result.action, "content": result.content}
        if answer["action"] != "accept":
            return None
        return {"answer": answer.get("content") or {}}

    @property
    def _client_has_forms(self) -> bool:
        capabilities = self._ctx.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    @property
    def request(self) -> InputRequiredResult | None:
        """The result of a call that waits for forms; None if no form waits."""
        from mcp_types import ElicitRequest, InputRequiredResult

        if not self._waiting:
            return None
        requests: Any = {name: ElicitRequest(params=params) for name, params in self._waiting.items()}
        return InputRequiredResult(input_requests=requests, request_state=json.dumps(self._answers))


def _earlier_answers(params: CallToolRequestParams) -> dict[str, Any]:
    from mcp import MCPError
    from mcp_types import INVALID_PARAMS, ElicitResult

    answers: dict[str, Any] = {}
    state = params.request_state or ""
    try:
        if len(state) > _MAX_STATE:
            raise ValueError(f"more than {_MAX_STATE:,} characters")
        stored = json.loads(state or "{}")
        for name, answer in stored.items():
            answers[name] = ElicitResult.model_validate(answer).model_dump(mode="json", include={"action", "content"})
    except (ValueError, AttributeError, RecursionError) as error:
        raise MCPError(INVALID_PARAMS, f"requestState is invalid: {describe_error(error)}") from error
    for name, response in (params.input_responses or {}).items():
        if isinstance(response, ElicitResult):
            answers[name] = response.model_dump(mode="json", include={"action", "content"})
    return answers
