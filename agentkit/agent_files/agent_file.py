"""`AgentFile`: what an `agent.yaml` may say. Its JSON Schema is that of the file, for editors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError

from agentkit.agent_files.yaml_lines import IMPORT
from agentkit_prompts.names import similar

__all__ = [
    "AgentFile",
    "AgentTool",
    "CompactionPart",
    "MCPTool",
    "MemoryPart",
    "ModelPart",
    "agent_file_schema",
    "is_import_path",
]

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
ImportPath: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=IMPORT),
    Field(description="`package.module:name`, or `./file.py:name` beside the agent file.", examples=["./tools.py:add"]),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ModelPart(_Part):
    """A model, and how it is to answer."""

    name: _Text = Field(description="As in `openai:gpt-5-mini`, or `http://localhost:8000/v1#qwen3`.")
    settings: dict[str, Any] = Field(
        default={}, repr=False, description="Fields of `ModelSettings`, such as `temperature: 0`."
    )
    chat_template: _Text | None = Field(
        default=None,
        description="For the address of a server that only completes text: a registered chat template, or a file.",
    )
    session_len: int | None = Field(
        default=None, description="With a chat template: tokens that the server has for prompt and reply."
    )
    control_tokens: Literal["escape", "reject", "allow"] | None = Field(
        default=None, description="With a chat template: what happens to untrusted text that forms its control tokens."
    )
    template_kwargs: dict[str, Any] = Field(
        default={}, description="With a chat template: what else it reads, such as `enable_thinking: false`."
    )


class MCPTool(_Part):
    """The tools of an MCP server."""

    mcp: _Text | list[_Text] = Field(repr=False, description="An http(s) address, or a command as a list.")
    headers: dict[str, str] = Field(
        default={}, repr=False, description="For an address. `${NAME}` is a variable of the environment."
    )
    env: dict[str, str] = Field(
        default={}, repr=False, description="For a command; `${NAME}` is an environment variable."
    )
    prefix: _Text | None = Field(default=None, description="Stands before the name of each of its tools.")
    approval: Literal["always"] | None = Field(default=None, description="Whether each call waits for a person.")


class AgentTool(_Part):
    """Another agent, which answers what the model asks of it."""

    agent: _Text = Field(description="Its file, beside this one, or `module:agent`.")
    name: _Name
    description: _Text


def _kind(entry: Any) -> str | None:
    if isinstance(entry, str):
        return "path"
    if isinstance(entry, dict) and "agent" not in entry:
        names = (*MCPTool.model_fields, *AgentTool.model_fields)
        # A mistyped key of an MCP tool counts too, so that the error names the right keys.
        if any(similar(str(key), names) in MCPTool.model_fields for key in entry):
            return "MCPTool"
    if isinstance(entry, MCPTool):
        return "MCPTool"
    return "AgentTool"


ToolEntry: TypeAlias = Annotated[
    Annotated[ImportPath, Tag("path")] | Annotated[MCPTool, Tag("MCPTool")] | Annotated[AgentTool, Tag("AgentTool")],
    Discriminator(_kind),
]


class MemoryPart(_Part):
    """Where documents, conversations and facts are kept, and recalled from."""

    home: _Text = Field(
        default=".agentkit", repr=False, description="Folder, from the agent file; or a postgresql:// address."
    )
    index: _Text | None = Field(
        default=None, repr=False, description="Folder or address of the vector index, if not in `home`."
    )
    embedder: _Text | None = Field(default=None, description="Such as `fastembed:BAAI/bge-small-en-v1.5`.")


class RecallPart(_Part):
    """How memory is asked."""

    limit: int | None = Field(default=None, ge=1)
    policy: _Text | None = None
    roles: list[Literal["user", "assistant"]] | None = None


class CompactionPart(_Part):
    """What is done with a conversation that has grown long."""

    kind: Literal["trim", "summarise"]
    model: _Text | None = Field(default=None, description="Who writes the summary, if not the agent's model.")
    tokens: int | None = Field(default=None, ge=1)
    keep: int | None = Field(default=None, ge=0)


class LimitsPart(_Part):
    """What one run may use; see `Limits`."""

    steps: int | None = Field(default=None, ge=1)
    tool_calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=1)
    input_tokens: int | None = Field(default=None, ge=1)
    output_tokens: int | None = Field(default=None, ge=1)
    money: float | None = Field(default=None, gt=0, description="US dollars.")
    seconds: float | None = Field(default=None, gt=0)
    nested_runs: int | None = Field(default=None, ge=0)
    repairs: int | None = Field(default=None, ge=0)
    on_limit: Literal["raise", "return"] | None = None


class BudgetPart(_Part):
    """How many tokens a prompt may have."""

    limit: int = Field(ge=1, description="Tokens of the context window.")
    reserve: int = Field(default=0, ge=0, description="Tokens of it that are left for the answer.")


class AgentFile(_Part):
    """An agent: its model, prompts, tools, memory and limits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, title="agent.yaml")

    name: _Name | None = Field(default=None, description="Its name; that of the file where it has none.")
    description: str = Field(default="", description="For people who choose one.")
    model: _Text | ModelPart = Field(description="As in `openai:gpt-5-mini`; `offline` answers without a network.")
    instructions: str = Field(default="", description="Literal text of the system prompt, after that of `layers`.")
    layers: _Text | None = Field(default=None, description="Folder of `*.prompt.j2` files, from the agent file.")
    tools: list[ToolEntry] = Field(default=[])
    memory: MemoryPart | Literal[True] | None = Field(default=None, description="`true` for a folder `.agentkit`.")
    recall: RecallPart | None = None
    compaction: CompactionPart | None = None
    output: ImportPath | None = Field(default=None, description="The type of the answer, if it is not text.")
    limits: LimitsPart = LimitsPart()
    budget: Annotated[int, Field(ge=1)] | BudgetPart | None = None
    counter: _Text | None = Field(
        default=None,
        description="Counts tokens as the model does: its tokenizer.json, or the folder of it, from the agent file; or "
        "`tiktoken:o200k_base`, an encoding, which may be downloaded. Without it tokens are an estimate.",
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _memory(cls, value: Any) -> Any:
        if value is None or value is True or isinstance(value, dict):
            return value
        raise PydanticCustomError("model_type", "true, or keys such as {home: .agentkit}")


def agent_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of an agent file, draft 2020-12."""
    schema = AgentFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def is_import_path(text: str) -> bool:
    """Whether a text names an object of a module, as opposed to a file."""
    return re.match(IMPORT, text) is not None and not text.endswith((".yaml", ".yml"))
