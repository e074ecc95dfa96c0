"""The same agent for a local model: its text in the model's own chat template, and its calls in the model's own form.

Without an address, a server on this machine stands in for the model: it answers /v1/completions as llama-server and
vLLM do. With one, such as `http://localhost:8080/v1`, the model there is asked.

Prints:

    <|im_start|>system
    You do sums.
    ...
    <|im_start|>user
    What is 2 + 3?<|im_end|>
    <|im_start|>assistant
    add {"a": 2, "b": 3} -> 5
    2 + 3 is 5.
"""

import os

from stand_in import stand_in

from agentkit import Agent, CompletionModel, tool

NAME = "qwen2.5-7b-instruct"


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


with stand_in() as address:
    agent = Agent(
        CompletionModel(NAME, base_url=os.environ.get("BASE_URL", address)),
        "You do sums.",
        tools=[add],
    )
    text = agent.compose("What is 2 + 3?").to_text(NAME)
    lines = text.splitlines()
    print(*lines[:2], "...", *lines[-3:], sep="\n")
    result = agent.run_sync("What is 2 + 3?")
    call, answer = result.messages[1].tool_calls[0], result.messages[2]
    print(call.name, call.arguments, "->", answer.text)
    print(result.output)
