"""An agent that uses the tools of an MCP server and a local function. It needs no key.

Prints:

    offered: greet, shop_price
    shop_price {"item": "lamp", "count": 3} -> {"total": 60}
    Three lamps cost 60 euros.
"""

import sys
from pathlib import Path

from agentkit import Agent, Message, ScriptedModel, ToolCall, tool
from agentkit.tools import MCPToolset


@tool
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


SERVER = [sys.executable, str(Path(__file__).with_name("server.py"))]
calls = Message("assistant", tool_calls=(ToolCall("c1", "shop_price", '{"item": "lamp", "count": 3}'),))

with MCPToolset(SERVER, timeout=20) as shop:
    model = ScriptedModel([calls, "Three lamps cost 60 euros."])
    agent = Agent(model, "You sell furniture.", tools=[greet, shop.prefixed("shop_")])
    result = agent.run_sync("What do three lamps cost?")

print("offered:", ", ".join(spec.name for spec in model.requests[0].tools))
call = result.messages[1].tool_calls[0]
print(call.name, call.arguments, "->", result.messages[2].text)
print(result.output)
