"""A coding assistant that is never asked without the root of the project and its language.

What the prompt files need is one schema, which is checked before anything is sent. The tools read below the root only.

Prints:

    needs: language, root
    refused, missing: language, root
    sent: The project is written in python. Its folder is /srv/greeter.
    greet.py defines one function, hello.
"""

import os
from pathlib import Path

from agentkit import Agent, Message, ScriptedModel, ToolCall, UserInput, model
from agentkit.prompts import KwargsError, PromptFolder
from agentkit.tools import file_tools

layers = PromptFolder.load(Path(__file__).with_name("prompts")).layers()
project = Path(__file__).with_name("project")

played = ScriptedModel(
    [
        Message("assistant", tool_calls=(ToolCall("c1", "read_file", '{"path": "greet.py"}'),)),
        "greet.py defines one function, hello.",
    ]
)
asked = model(os.environ["MODEL"]) if "MODEL" in os.environ else played
agent = Agent(asked, layers=layers, tools=file_tools(project))

print("needs:", ", ".join(sorted(agent.additional_kwargs_schema["properties"])))
try:
    agent.run_sync("What does greet.py define?")
except KwargsError as error:
    print("refused, missing:", ", ".join(sorted(error.problems)))

question = UserInput("What does greet.py define?", additional_kwargs={"root": "/srv/greeter", "language": "python"})
print("sent:", agent.compose(question).messages[-1].text.splitlines()[0])
print(agent.run_sync(question).output)
