"""A question about an image: one prompt, as each model takes it.

Prints:

    OpenAI: text, image_url, text
    Anthropic: text, image, text
    as text: What is on [image: dot.png]?
    a red dot
"""

import base64

from agentkit import Agent, ScriptedModel
from agentkit.prompts import Image

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
question = ["What is on ", Image(DOT, name="dot.png"), "?"]
agent = Agent(ScriptedModel(["a red dot"]), "You describe images.")

composition = agent.compose(question)
for name, payload in (("OpenAI", composition.to_openai()), ("Anthropic", composition.to_anthropic())):
    print(f"{name}:", ", ".join(part["type"] for part in payload["messages"][-1]["content"]))
print("as text:", composition.messages[-1].text)
print(agent.run_sync(question).output)
