"""Everything a run does, as events, while it happens. No key needed.

Prints:

    sending 3 layers, 2 messages
    calling rain with {"city": "Bergen"}
    -> 19 mm
    sending 4 layers, 4 messages
    Take | an | umbrella. |
    2 model calls
"""

import asyncio

from agentkit import (
    Agent,
    Message,
    PromptComposed,
    RunFinished,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    tool,
)


@tool
def rain(city: str) -> str:
    """Look up how much rain is expected today."""
    return {"Bergen": "19 mm"}.get(city, "none")


model = ScriptedModel(
    [
        Message("assistant", tool_calls=(ToolCall("call_1", "rain", '{"city": "Bergen"}'),)),
        "Take an umbrella.",
    ]
)


async def main() -> None:
    agent = Agent(model, "You know the weather.", tools=[rain])
    async for event in agent.stream("Do I need an umbrella in Bergen?"):
        match event:
            case PromptComposed(composition=sent):
                layers = [row for row in sent.explain() if row.layer != "overhead"]
                print(f"sending {len(layers)} layers, {len(sent.messages)} messages")
            case ToolStarted(call=call):
                print(f"calling {call.name} with {call.arguments}")
            case ToolFinished(result=result):
                print(f"-> {result.content}")
            case TextDelta(text=text):
                print(text.strip(), end=" | ")
            case RunFinished(result=result):
                print(f"\n{result.steps} model calls")


asyncio.run(main())
