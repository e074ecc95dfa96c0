"""Types of OpenAI-compatible requests.

A null requests nothing and is accepted in every field. Fields that change no answer, such as labels, are accepted too.
Any other field or value that the server would ignore is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from agentkit.errors import AgentDefinitionError
from agentkit.models.settings import ModelSettings
from agentkit.server.access import Caller
from agentkit.server.endpoints.http_endpoint import Kwargs, Locale, Tags
from agentkit.server.request_runs.client_tools import ClientTool
from agentkit.server.request_runs.request_run import ANY_OBJECT
from agentkit.server.server_errors import BadRequest, Unprocessable

_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Zero = Annotated[float, Field(ge=0, le=0)]
_Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_Metadata = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]
_Label = Annotated[str, StringConstraints(max_length=512)]
_Verbosity = Literal["low", "medium", "high"]
_NoTokens = Annotated[dict[str, Any], Field(max_length=0)]
_NoFunctions = Annotated[list[Any], Field(max_length=0)]
_Included = Literal[
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
"""Additions to items of an answer. Log probabilities are missing, because no model returns them here."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {name: value for name, value in data.items() if value is not None}


class _Function(_Part):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def tool(self) -> ClientTool:
        """The declared tool."""
        return ClientTool(self.name, self.description or "", self.parameters)


class _ChatTool(_Part):
    type: Literal["function"]
    function: _Function


class _ResponsesTool(_Function):
    type: Literal["function"]


class _NamedFunction(_Part):
    name: ToolName


class _ChatChoice(_Part):
    type: Literal["function"]
    function: _NamedFunction


class _ResponsesChoice(_Part):
    type: Literal["function"]
    name: ToolName


class _Schema(_Part):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class _TextFormat(_Part):
    type: Literal["text"]


class _JsonFormat(_Part):
    type: Literal["json_object"]


class _ChatSchemaFormat(_Part):
    type: Literal["json_schema"]
    json_schema: _Schema


class _ResponsesSchemaFormat(_Schema):
    type: Literal["json_schema"]


class _StreamOptions(_Part):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class _Common(_Part):
    model: _Name = Field(description="Name of an agent; see GET /v1/models.")
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = Field(default=None, description="The user whose memory is read, within the tenant.")
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: _Label | None = None
    metadata: _Metadata | None = None
    store: bool | None = None
    frequency_penalty: _Zero | None = None
    presence_penalty: _Zero | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    additional_kwargs: Kwargs = Field(default={}, description="Values that the prompts of the agent require.")
    locale: Locale | None = Field(default=None, description="Language of the prompts, such as `de`.")
    tags: Tags = Field(default=[], description="Texts by which lists of runs are filtered.")

    def _settings(self, **settings: Any) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "parallel_tool_calls": self.parallel_tool_calls,
            "prompt_cache_key": self.prompt_cache_key,
            **settings,
        }


class ChatRequest(_Common):
    """A chat completion."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    stream_options: _StreamOptions | None = None
    tools: list[_ChatTool] | None = Field(default=None, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | _ChatChoice | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: int | None = None
    reasoning_effort: _Effort | None = None
    response_format: Annotated[_TextFormat | _JsonFormat | _ChatSchemaFormat, Field(discriminator="type")] | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    logit_bias: _NoTokens | None = None
    modalities: list[Literal["text"]] | None = None
    functions: _NoFunctions | None = None
    prediction: dict[str, Any] | None = None
    verbosity: _Verbosity | None = None

    @property
    def client_tools(self) -> list[ClientTool]:
        """The tools of the client."""
        return [tool.function.tool for tool in self.tools or ()]

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the answer; None for text."""
        if isinstance(self.response_format, _ChatSchemaFormat):
            return self.response_format.json_schema.schema_
        if isinstance(self.response_format, _JsonFormat):
            return ANY_OBJECT
        return None

    def settings(self) -> ModelSettings | None:
        """Return the model settings of the request; None if it has none."""
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise BadRequest("max_tokens and max_completion_tokens: only one may be set", param="max_tokens")
        choice: Any = self.tool_choice
        if isinstance(choice, _ChatChoice):
            choice = choice.function.name
        return settings_of(
            self._settings(
                max_tokens=self.max_completion_tokens or self.max_tokens,
                stop=self.stop or None,
                seed=self.seed,
                effort=self.reasoning_effort,
                tool_choice=choice,
            )
        )


class _Reasoning(_Part):
    effort: _Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class _Text(_Part):
    format: Annotated[_TextFormat | _JsonFormat | _ResponsesSchemaFormat, Field(discriminator="type")] | None = None
    verbosity: _Verbosity | None = None


class ResponsesRequest(_Common):
    """A response."""

    input: str | Annotated[list[dict[str, Any]], Field(min_length=1)]
    instructions: str | None = Field(default=None, description="Text after the prompts of the agent.")
    previous_response_id: str | None = None
    tools: list[_ResponsesTool] | None = Field(default=None, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | _ResponsesChoice | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[_Included] | None = None
    stream_options: _StreamOptions | None = None
    background: Literal[False] | None = None
    max_tool_calls: int | None = Field(default=None, ge=1)

    @property
    def client_tools(self) -> list[ClientTool]:
        """The tools of the client."""
        return [tool.tool for tool in self.tools or ()]

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the answer; None for text."""
        if self.text is None:
            return None
        if isinstance(self.text.format, _ResponsesSchemaFormat):
            return self.text.format.schema_
        if isinstance(self.text.format, _JsonFormat):
            return ANY_OBJECT
        return None

    def settings(self) -> ModelSettings | None:
        """Return the model settings of the request; None if it has none."""
        choice: Any = self.tool_choice
        if isinstance(choice, _ResponsesChoice):
            choice = choice.name
        effort = None
        if self.reasoning is not None:
            effort = self.reasoning.effort
        return settings_of(self._settings(max_tokens=self.max_output_tokens, effort=effort, tool_choice=choice))


def settings_of(values: Mapping[str, Any]) -> ModelSettings | None:
    """Return model settings of the values that are not None; None without such values.

    Raises:
        BadRequest: A value is out of range.
    """
    settings = {name: value for name, value in values.items() if value is not None}
    if not settings:
        return None
    try:
        return ModelSettings(**settings)
    except AgentDefinitionError as error:
        raise BadRequest(str(error), code="invalid_value") from error


def user_of(caller: Caller, named: str | None) -> str:
    """Return the user of a request.

    Raises:
        BadRequest: The name of the user is invalid; status 400 as at OpenAI, not 422.
        AccessDenied: The token is bound to another user.
    """
    try:
        return caller.as_user(named)
    except Unprocessable as error:
        raise BadRequest(str(error), param=error.param, code=error.code) from None
