"""agentkit tools as an MCP server, for tests: `python mcp_offering.py NAME [PORT]`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic import BaseModel

from agentkit.prompts import File, Image, Url
from agentkit.tools import MCPServerError, ToolContext, ToolFailure, serve_mcp, tool

PNG = b"\x89PNG\r\n\x1a\npixels"
running: list[str] = []


class Point(BaseModel):
    x: int
    y: int = 0


@tool
def scale(point: Point, by: int) -> Point:
    """Scale a point."""
    return Point(x=point.x * by, y=point.y * by)


@tool
def draw() -> list[Any]:
    print("drawing")  # a stray print must not damage the protocol
    address = Image(Url("https://host/far.png"))
    return ["see", Image(PNG, name="near.png"), File(b"%PDF-1.7", name="a.pdf"), address, Image("/nowhere.png")]


@tool
def broke() -> str:
    raise ToolFailure("no funds", {"missing": 3})


@tool
def crash() -> str:
    raise MCPServerError("upstream is away")


@tool(max_result_chars=10)
def long() -> str:
    return "x" * 100


@tool(timeout=0.2)
async def slow() -> None:
    await asyncio.sleep(60)


@tool(approval="always")
def pay(amount: int) -> str:
    return f"paid {amount}"


@tool(sequential=True)
async def write(name: str) -> str:
    running.append(name)
    await asyncio.sleep(0.1)
    alone = running == [name]
    running.remove(name)
    return str(alone)


@tool
def context(context: ToolContext[str]) -> str:
    return f"{context.deps} {context.call_id}"


TOOLS = [scale, draw, broke, crash, long, slow, pay, write, context]
OPTIONS: dict[str, Any] = {
    "name": "offering",
    "version": "1.2",
    "instructions": "Use with care.",
    "deps": "deps",
    "approve": lambda call: "5" in call.arguments,
}


def main() -> None:
    serve_mcp(TOOLS, port=int(sys.argv[2]) if len(sys.argv) > 2 else None, **OPTIONS)


if __name__ == "__main__":
    main()
