"""`ServedResources`: resources of an MCP server, from texts, documents, media and functions."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.parts import Media, Text
from agentkit_prompts.errors import MediaError, check_types
from agentkit_tools.calling.result_content import to_content
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.mcp.served_calls import called
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

Resources: TypeAlias = Mapping[str, "str | Text | Media | Document | Tool | Callable[..., Any]"]
"""Resources by address: a text, a document, media, or a function that returns one of them, or data for JSON. Words in
braces in an address, such as `orders://{number}`, are arguments of the function."""

_WORD = re.compile(r"\{(\w+)\}")
_ENDS = re.compile(r"[/?#]")
"""Characters that end a word in an address."""
_NOT_FOUND = -32002
"""Code of the protocol until 2025-11-25 for an unknown resource."""


class ServedResources:
    """Handlers of the requests of clients for resources.

    Raises:
        ToolDefinitionError: An address or a function is invalid.
    """

    def __init__(self, resources: Resources, deps: Any) -> None:
        check_types(
            ToolDefinitionError, "MCP server", resources=(resources, Mapping, "a mapping of addresses to resources")
        )
        self._resources = resources
        self._deps = deps
        self._tools: dict[str, tuple[Any, Tool]] = {}
        problems = [problem for address, value in resources.items() if (problem := self._problem(address, value))]
        if problems:
            raise ToolDefinitionError(f"MCP server: resources: {'; '.join(problems)}", names=["resources"])

    async def list_resources(self, ctx: Any, params: Any) -> ListResourcesResult:
        from mcp_types import ListResourcesResult

        entries = [self._entry(address, "uri") for address in self._resources if not _WORD.search(address)]
        return ListResourcesResult.model_validate({"resources": entries})

    async def list_templates(self, ctx: Any, params: Any) -> ListResourceTemplatesResult:
        from mcp_types import ListResourceTemplatesResult

        entries = [self._entry(address, "uriTemplate") for address in self._resources if _WORD.search(address)]
        return ListResourceTemplatesResult.model_validate({"resourceTemplates": entries})

    async def read(self, ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, ReadResourceResult
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        uri = str(params.uri)
        for address, value in [*self._resources.items()]:
            words = _words_in(address, uri)
            if words is None:
                continue
            content = value
            if callable(value):
                content = await called(self._tool(address, value), words, self._deps)
            values = content if isinstance(content, list | tuple) else [content]
            return ReadResourceResult.model_validate({"contents": [_contents(uri, each) for each in values]})
        code = INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND
        raise MCPError(code, f"unknown resource {uri!r:.200}", {"uri": uri[:1_000]})

    def _problem(self, address: object, value: object) -> str:
        if not isinstance(address, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", address):
            return f"{address!r:.80}: expected an address with a scheme, such as 'notes://today'"
        if " " in address or not address.isprintable():
            return f"{address!r:.80}: an address contains no spaces and control characters"
        if "}{" in address:
            return f"{address}: words in braces need text between them"
        names = _WORD.findall(address)
        words = set(names)
        if len(words) < len(names) or re.search("[{}]", _WORD.sub("", address)):
            return f"{address}: expected different words of letters, digits and underscores in braces"
        if callable(value):
            parameters = set(self._tool(address, value).spec.parameters.get("properties", {}))
            if parameters != words:
                return (
                    f"{address}: the function has the parameters {', '.join(sorted(parameters)) or 'none'}, and the "
                    f"address the words {', '.join(sorted(words)) or 'none'}"
                )
        elif words:
            return f"{address}: an address with words in braces needs a function"
        elif not isinstance(value, str | Text | Media | Document):
            return f"{address}: expected text, a document, media or a function, got {type(value).__name__}"
        return ""

    def _tool(self, address: str, value: Any) -> Tool:
        """Return the tool of a function; the mapping can have changed since the last request."""
        if isinstance(value, Tool):
            return value
        function, tool = self._tools.get(address, (None, None))
        if tool is None or function is not value:
            name = None
            if getattr(value, "__name__", "<lambda>") == "<lambda>":
                name = address
            tool = Tool(value, name=name, description=value.__doc__ or address)
            self._tools[address] = (value, tool)
        return tool

    def _entry(self, address: str, key: str) -> dict[str, Any]:
        value: Any = self._resources[address]
        entry: dict[str, Any] = {key: address, "name": address}
        if callable(value):
            tool = self._tool(address, value)
            entry |= {"name": tool.original_name, "description": tool.description}
            return entry
        entry["mimeType"] = _mime_of(value)
        if isinstance(value, Document) and value.title:
            entry["title"] = value.title
        return entry


def _words_in(address: str, uri: str) -> dict[str, str] | None:
    """Return the words of an address with braces in `uri`; None if `uri` is another address."""
    first, *pieces = _WORD.split(address)
    if not pieces and address == uri:
        return {}
    if not pieces or not uri.startswith(first):
        return None
    words: dict[str, str] = {}
    position = len(first)
    for name, following in zip(pieces[::2], pieces[1::2], strict=True):
        end = len(uri)
        if following:
            end = uri.find(following, position)
        word = uri[position:end]
        if end < 0 or not word or _ENDS.search(word):
            return None
        words[name] = unquote(word)
        position = end + len(following)
    if position != len(uri):
        return None
    return words


def _mime_of(value: Any) -> str:
    if isinstance(value, Media):
        return value.mime
    if isinstance(value, Document):
        return str(value.metadata.get("mime_type", "text/plain"))
    if isinstance(value, str | Text):
        return "text/plain"
    return "application/json"


def _contents(uri: str, value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"uri": uri, "mimeType": _mime_of(value)}
    if isinstance(value, Media):
        try:
            return {**fields, "blob": base64.b64encode(value.read()).decode("ascii")}
        except MediaError as error:
            return {**fields, "mimeType": "text/plain", "text": f"cannot be read: {error}"}
    if isinstance(value, bytes):
        blob = base64.b64encode(value).decode("ascii")
        return {**fields, "mimeType": "application/octet-stream", "blob": blob}
    if isinstance(value, Document | Text):
        return {**fields, "text": value.text}
    if isinstance(value, str):
        return {**fields, "text": value}
    return {**fields, "text": str(to_content(value))}
