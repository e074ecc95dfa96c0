"""The version of an agent changes with each input of the model, and is the same in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from agentkit import Agent, Layers, ScriptedModel, Tool
from agentkit.prompts import Example, ExamplesPrompt, Size, Template, TextPrompt, WrapPrompt
from agentkit.prompts.example_selectors import KeywordSelector

LONG = "Say more. " * 50
PROGRAM = """
from agentkit import Agent, Layers, ScriptedModel
from agentkit.prompts import ExamplesPrompt

class Latest:
    def select(self, query, pool):
        return pool[-1:]

layers = Layers(before_input=ExamplesPrompt(selector=Latest()))
print(Agent(ScriptedModel(["x"]), layers=layers, name="a").definition.version.id)
"""


def version(layers: Any, **options: Any) -> str:
    options["layers" if isinstance(layers, Layers) else "instructions"] = layers
    return Agent(ScriptedModel(["x"]), name="a", **options).definition.version.id


def test_a_change_deep_inside_of_a_prompt_changes_the_version(tmp_path: Path) -> None:
    file = tmp_path / "prompt.md"

    def read(text: str) -> TextPrompt:
        file.write_text(text, "utf-8")
        return TextPrompt(Template.from_file(file))

    assert version(LONG) == version(Layers(LONG))
    found = [
        version(each)
        for each in (
            LONG,
            LONG + "Or less.",
            TextPrompt(Template(LONG + "{{ user_input }}"), volatility="session"),
            Template({"en": LONG, "de": LONG}),
            Template({"en": LONG, "de": LONG + "Oder weniger."}),
            WrapPrompt(wrapped_prompts=LONG + "One."),
            WrapPrompt(wrapped_prompts=LONG + "Two."),
            TextPrompt(LONG, size=Size(max=9)),
            ExamplesPrompt(examples=(Example("a", LONG + "One."),)),
            ExamplesPrompt(examples=(Example("a", LONG + "Two."),)),
            ExamplesPrompt(selector=KeywordSelector(2)),
            ExamplesPrompt(selector=KeywordSelector(3)),
            read(LONG + "One."),
            read(LONG + "Two."),
        )
    ]
    assert len(set(found)) == len(found)
    assert version(read("x")) == version(read("x"))


def test_a_change_inside_of_the_parameters_of_a_tool_changes_the_version() -> None:
    def look(longest: int) -> Tool:
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": longest}}}
        return Tool.from_json_schema("look", "Look.", schema, str)

    assert version("x", tools=[look(8)]) == version("x", tools=[look(8)]) != version("x", tools=[look(9)])


def test_the_version_of_an_agent_with_custom_objects_is_the_same_in_every_process() -> None:
    found = {subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(found) == 1 and found != {b""}
