"""An MCP server of agentkit for the conformance suite of the protocol.

Start the server, then run the suite (Node 22 or newer):

    python -m tests.conformance.mcp_server 8931
    npx @modelcontextprotocol/conformance server --url http://127.0.0.1:8931/mcp
"""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import Any

from agentkit.prompts import Audio, File, Image, Text
from agentkit.tools import Tool, ToolContext, ToolFailure, serve_mcp, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
IMAGE = Image(PNG, media_type="image/png")


@tool
def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """Return an image."""
    return IMAGE


@tool
def test_audio_content() -> Audio:
    """Return audio."""
    return Audio(WAV, media_type="audio/wav")


@tool
def test_embedded_resource() -> File:
    """Return a file."""
    return File(b"This is an embedded resource content.", media_type="text/plain", name="embedded")


@tool
def test_multiple_content_types() -> list[Any]:
    """Return several parts."""
    return [Text("Multiple content types test:"), IMAGE, File(b"{}", media_type="application/json", name="data.json")]


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolFailure("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        context.progress(f"Completed step {done} of 100", done=done, total=100)
        await asyncio.sleep(0.05)
    return "done"


@tool
async def test_elicitation(context: ToolContext, message: str) -> str:
    """Ask the person."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    schema = {"type": "object", "properties": fields, "required": ["username", "email"]}
    return f"User response: {await context.ask(message, schema)}"


@tool
async def test_elicitation_sep1034_defaults(context: ToolContext) -> str:
    """Ask the person, with default values."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {await context.ask('Please confirm', {'type': 'object', 'properties': fields})}"


@tool
async def test_elicitation_sep1330_enums(context: ToolContext) -> str:
    """Ask the person to choose."""
    names = [f"option{number}" for number in (1, 2, 3)]
    values = [f"value{number}" for number in (1, 2, 3)]
    titled = [
        {"const": value, "title": title} for value, title in zip(values, ["First", "Second", "Third"], strict=True)
    ]
    fields = {
        "untitledSingle": {"type": "string", "enum": names},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": names}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {await context.ask('Please choose', {'type': 'object', 'properties': fields})}"


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


async def _schema(**arguments: Any) -> str:
    return str(arguments)


def test_simple_prompt() -> str:
    """Return a prompt."""
    return "This is a simple prompt for testing."


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return a prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - a name of the suite
    """Return a prompt with a file."""
    return [File(b"Embedded resource content for testing.", media_type="text/plain", name="embedded"), "Process it."]


def test_prompt_with_image() -> list[Any]:
    """Return a prompt with an image."""
    return [IMAGE, "Please analyze the image above."]


def template_data(id: str) -> dict[str, Any]:
    """Data of a template."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


RESOURCES: dict[str, Any] = {
    "test://static-text": "This is the content of the static text resource.",
    "test://static-binary": IMAGE,
    "test://watched-resource": "Watched resource content",
    "test://template/{id}/data": template_data,
}


def main() -> None:
    """Serve until the process is terminated."""
    tools: list[Any] = [
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        Tool.from_json_schema("json_schema_2020_12_tool", "Has a schema.", SCHEMA, _schema),
    ]
    prompts: list[Any] = [
        test_simple_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
        test_prompt_with_image,
    ]
    serve_mcp(tools, resources=RESOURCES, prompts=prompts, port=int(sys.argv[1]), name="agentkit-conformance")


if __name__ == "__main__":
    main()
