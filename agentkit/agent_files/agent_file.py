"""`AgentFile`: the fields of an `agent.yaml`, and their JSON Schema for editors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError

from agentkit.agent_files.yaml_lines import IMPORT
from agentkit.models.prices import Dollars
from agentkit_prompts.names import similar
from agentkit_prompts.options import Count, CountOrZero

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
ImportPath: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=IMPORT),
    Field(
        description="`package.module:name`, or `./file.py:name` relative to the agent file.",
        examples=["./tools.py:add"],
    ),
]


class _Part(BaseModel):
    """A mapping of an agent file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _PriceFields(_Part):
    input: Dollars = Field(description="Price of the prompt.")
    output: Dollars = Field(description="Price of the reply.")
    cached: Dollars | None = Field(
        default=None, description="Price of prompt tokens from the prompt cache; the price of the prompt by default."
    )


class LongPricePart(_PriceFields):
    """Price of a whole request with a long prompt."""

    tokens: CountOrZero = Field(description="The price is for prompts with more tokens.")


class PricePart(_PriceFields):
    """Price of a million tokens in US dollars; see `Price`."""

    long: LongPricePart | None = Field(default=None, description="Price of a whole request with a long prompt.")


class ModelPart(_Part):
    """A model with its settings."""

    name: _Text = Field(description="Such as `openai:gpt-5-mini` or `http://localhost:8000/v1#qwen3`.")
    settings: dict[str, Any] = Field(
        default={}, repr=False, description="Fields of `ModelSettings`, such as `temperature: 0`."
    )
    redact: Literal["untrusted", "all"] | None = Field(
        default=None,
        description="Replaces personal data before a request and restores it in replies: in `untrusted` texts, or in "
        "`all` texts. See `RedactingModel`.",
    )
    chat_template: _Text | None = Field(
        default=None,
        description="Registered chat template, or a file, for the address of a completion server.",
    )
    session_len: Count | None = Field(
        default=None, description="With a chat template: maximum tokens of prompt and reply at the server."
    )
    control_tokens: Literal["escape", "reject", "allow"] | None = Field(
        default=None, description="With a chat template: treatment of untrusted text that contains its control tokens."
    )
    template_kwargs: dict[str, Any] = Field(
        default={}, description="With a chat template: its further variables, such as `enable_thinking: false`."
    )
    price: PricePart | None = Field(
        default=None,
        description="For `limits.money` and the cost of a run, if agentkit does not contain the price of the model.",
    )


class MCPTool(_Part):
    """The tools of an MCP server."""

    mcp: _Text | list[_Text] = Field(repr=False, description="An http(s) address, or a command as a list.")
    headers: dict[str, str] = Field(
        default={}, repr=False, description="For an address; `${NAME}` is an environment variable."
    )
    env: dict[str, str] = Field(
        default={}, repr=False, description="For a command; `${NAME}` is an environment variable."
    )
    prefix: _Text | None = Field(default=None, description="Prefix of the names of its tools.")
    approval: Literal["always"] | None = Field(default=None, description="`always` if each call needs approval.")


class AgentTool(_Part):
    """Another agent, as a tool."""

    agent: _Text = Field(description="Path of its file, relative to this agent file, or `module:agent`.")
    name: _Name
    description: _Text


def _tool_kind(entry: Any) -> str | None:
    """Return the tag of the union member for an entry of `tools`, so that an error is about this member only."""
    if isinstance(entry, str):
        return "path"
    if isinstance(entry, dict) and "agent" not in entry:
        names = (*MCPTool.model_fields, *AgentTool.model_fields)
        # A mistyped key of an MCP tool also selects it, so that the error suggests its keys.
        if any(similar(str(key), names) in MCPTool.model_fields for key in entry):
            return "MCPTool"
    if isinstance(entry, MCPTool):
        return "MCPTool"
    return "AgentTool"


ToolEntry: TypeAlias = Annotated[
    Annotated[ImportPath, Tag("path")] | Annotated[MCPTool, Tag("MCPTool")] | Annotated[AgentTool, Tag("AgentTool")],
    Discriminator(_tool_kind),
]


class MemoryPart(_Part):
    """Memory of documents, conversations and facts."""

    home: _Text = Field(
        default=".agentkit", repr=False, description="Folder, relative to the agent file; or a postgresql:// address."
    )
    index: _Text | None = Field(
        default=None, repr=False, description="Folder or address of the vector index, if not in `home`."
    )
    embedder: _Text | None = Field(default=None, description="Such as `fastembed:BAAI/bge-small-en-v1.5`.")
    shared: list[_Text] = Field(
        default=[], description="Names of shared documents to read too; see `agentkit ingest --shared`."
    )


class RecallPart(_Part):
    """Options of recall; see `RecallOptions`."""

    limit: int | None = Field(default=None, ge=1)
    policy: _Text | None = None
    roles: list[Literal["user", "assistant"]] | None = None


class CompactionPart(_Part):
    """Compaction of long conversations."""

    kind: Literal["trim", "summarise"]
    model: _Text | None = Field(default=None, description="Model of the summary; the agent's model by default.")
    price: PricePart | None = Field(default=None, description="Price of `model`.")
    tokens: int | None = Field(default=None, ge=1)
    keep: int | None = Field(default=None, ge=0)


class ClearResultsPart(_Part):
    """Removal of old tool results from the prompt; see `ClearResults`."""

    keep: int | None = Field(default=None, ge=1, description="Latest steps whose results stay; 3 by default.")
    over: int | None = Field(default=None, ge=1, description="Results of at most this number of tokens stay.")
    batch: int | None = Field(default=None, ge=0, description="Minimum tokens that one clearing removes.")
    only: list[_Text] | None = Field(default=None, description="Tools whose results are cleared; all by default.")
    without: list[_Text] | None = Field(default=None, description="Tools whose results stay.")
    start: int | None = Field(default=None, ge=0, description="Characters at the start of a result that stay.")


class LimitsPart(_Part):
    """Limits of a run; see `Limits`."""

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
    on_tool_error: Literal["report", "raise"] | None = None


class ExamplePart(_Part):
    """A worked example."""

    input: str
    output: str


class BudgetPart(_Part):
    """Maximum tokens of a prompt."""

    limit: int = Field(ge=1, description="Tokens of the context window.")
    reserve: int = Field(default=0, ge=0, description="Tokens of the context window for the answer.")


class AgentFile(_Part):
    """An agent: its model, prompts, tools, memory and limits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, title="agent.yaml")

    name: _Name | None = Field(default=None, description="Name of the agent; the name of the file by default.")
    description: str = Field(default="", description="Description for people.")
    model: _Text | ModelPart = Field(description="Such as `openai:gpt-5-mini`; `offline` answers without a network.")
    instructions: str = Field(default="", description="Literal text of the system prompt, after the text of `layers`.")
    layers: _Text | None = Field(default=None, description="Folder of `*.prompt.j2` files, relative to the agent file.")
    examples: list[ExamplePart] = Field(
        default=[],
        description="Worked examples for the prompt of the kind `examples`, or after the system prompt without it.",
    )
    tools: list[ToolEntry] = Field(default=[])
    descriptions: dict[str, _Text] = Field(
        default={}, description="Descriptions of tools for the model, by name, instead of their descriptions in code."
    )
    skills: _Text | None = Field(
        default=None, description="Folder of skills, relative to the agent file: subfolders with a `SKILL.md`."
    )
    todos: Literal[True] | None = Field(default=None, description="`true` for the tool `write_todos` and its list.")
    memory: MemoryPart | Literal[True] | None = Field(default=None, description="`true` for a folder `.agentkit`.")
    recall: RecallPart | None = None
    compaction: CompactionPart | None = None
    clear_results: ClearResultsPart | None = Field(
        default=None, description="Placeholders for old tool results; `{}` for the default settings."
    )
    output: ImportPath | None = Field(default=None, description="Type of the answer; text by default.")
    deps: ImportPath | None = Field(
        default=None,
        description="Function that receives the RunCaller of each run and returns the deps of its tools; or an object "
        "for all runs.",
    )
    limits: LimitsPart = LimitsPart()
    guards: list[ImportPath] = Field(default=[], description="Functions with the decorator `@guard`, in their order.")
    budget: Annotated[int, Field(ge=1)] | BudgetPart | None = None
    counter: _Text | None = Field(
        default=None,
        description="Exact token counter: the tokenizer.json of the model or its folder, relative to the agent "
        "file; or an encoding such as `tiktoken:o200k_base`, which may be downloaded. Tokens are estimated by default.",
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _memory(cls, value: Any) -> Any:
        if value is None or value is True or isinstance(value, dict):
            return value
        raise PydanticCustomError("memory", "expected true, or keys such as {home: .agentkit}")


def agent_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of an agent file, draft 2020-12."""
    schema = AgentFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def is_import_path(text: str) -> bool:
    """True if a text names an object of a module instead of an agent file."""
    return re.match(IMPORT, text) is not None and not text.endswith((".yaml", ".yml"))
