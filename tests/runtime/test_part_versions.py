"""Each run records the versions of its agent, of each prompt and of each tool schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentkit import Agent, Journal, Layers, ScriptedModel, tool
from agentkit.prompts import AdditionalInfoPrompt, ExamplesPrompt, PromptFolder, Template, TextPrompt, WrapPrompt


@tool
def search(query: str) -> str:
    """Search the shop."""
    return query


def parts(layers: Any, **options: Any) -> dict[str, str]:
    """Return the versions in the journal of a run, as text and back."""
    agent = Agent(ScriptedModel.repeat(lambda composition: "hi"), layers=layers, **options)
    journal = agent.run_sync("Hello").journal
    read = Journal.loads(journal.dumps())
    assert read.version == journal.version == agent.definition.version.id
    assert read.copy().parts == read.parts == journal.parts
    return dict(read.parts)


def test_a_change_of_a_part_changes_its_version_only() -> None:
    def layers(persona: Any = "Be kind.", example: str = "b", inner: str = "x", **settings: Any) -> Layers:
        return Layers(
            [TextPrompt(persona, name="persona", **settings), "Answer.", WrapPrompt([inner], name="notes")],
            before_input=ExamplesPrompt([("a", example)]),
        )

    before = parts(layers(), tools=[search])
    assert set(before) == {
        *("system.persona", "system[1]", "system.notes", "system[2].wrapped_prompts[0]"),
        *("before_input", "input", "tools.search"),
    }
    assert before == parts(layers(), tools=[search])
    cases: dict[str, tuple[Any, Any]] = {
        "system.persona": (layers("Be brief."), search),
        "system.persona ": (layers(fence=True), search),
        "system.persona  ": (layers({"en": "Be kind.", "zh": "x"}), search),
        "before_input": (layers(example="c"), search),
        "system[2].wrapped_prompts[0]": (layers(inner="y"), search),
        "tools.search": (layers(), search.with_changes(description="Search all shops.")),
    }
    for name, (changed, changed_tool) in cases.items():
        after = parts(changed, tools=[changed_tool])
        assert {each for each in before if before[each] != after[each]} == {name.strip()}, name


def test_a_prompt_file_and_a_schema_have_versions(tmp_path: Path) -> None:
    file = tmp_path / "persona.prompt.j2"
    file.write_text("---\nbudget: {max: 50}\n---\nBe kind.", "utf-8")
    before = parts(PromptFolder.load(tmp_path).layers())
    file.write_text("---\nbudget: {max: 60}\n---\nBe kind.", "utf-8")
    after = parts(PromptFolder.load(tmp_path).layers())
    assert before.keys() == {"system.persona", "input"} and before["system.persona"] != after["system.persona"]

    def with_schema(kind: str) -> Layers:
        schema = {"type": "object", "properties": {"x": {"type": kind, "default": None}}}
        return Layers(before_input=AdditionalInfoPrompt(Template("{{ x | default(1) }}", params_schema=schema)))

    assert parts(with_schema("string")) != parts(with_schema("integer"))


def test_prompts_with_the_same_name_have_different_names_as_parts() -> None:
    assert [*parts(Layers([TextPrompt("a", name="x"), TextPrompt("b", name="x")]))] == [
        "system.x",
        "system[1]",
        "input",
    ]
