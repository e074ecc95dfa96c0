"""`TextPart`: a text of an agent that an optimisation can change: a prompt, the description of a tool, or examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.agent_files.file_texts import described, described_tools, with_examples
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.improve.improve_errors import ImproveError
from agentkit.run.parts.agent_version import prompt_parts
from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.errors import PromptError
from agentkit_prompts.names import nearest
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.prompt import BasePrompt

PartKind: TypeAlias = Literal["prompt", "description", "examples"]
EXAMPLES = "examples"
"""Name of the part of the worked examples."""
_MAX_CHARACTERS = 20_000
"""Maximum length of a text."""
_SLOT = re.compile(r"\{\{|\{%")
_CONTROL = re.compile(r"[^\n\t -\ud7ff\ue000-\U0010ffff]|[\x7f-\x9f]")
_OUTERMOST = re.compile(r"\w+\[\d+\]")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text of an agent."""

    name: str
    """Such as `system.persona`, `tools.search.description` or `examples`."""
    text: str
    kind: PartKind
    prompt: BasePrompt | None = None
    path: str = ""
    """Path of the prompt in the layers."""
    tool: str = ""
    """Name of the tool."""


def agent_of(agent: Agent[Any, Any] | LoadedAgent) -> Agent[Any, Any]:
    """Return the agent of an agent file, or the agent.

    Raises:
        ImproveError: The object is no agent.
    """
    if isinstance(agent, LoadedAgent):
        return agent.agent
    if isinstance(agent, Agent):
        return agent
    raise ImproveError(f"agent: expected an Agent or a LoadedAgent, got {type(agent).__name__}", name="agent")


def part_texts(agent: Agent[Any, Any] | LoadedAgent) -> dict[str, str]:
    """Return the texts of an agent that an optimisation can change, by the name of the part.

    Prompts inside wrappers, default templates and tools that each run creates are left out.
    """
    return {part.name: part.text for part in text_parts(agent_of(agent))}


def text_parts(agent: Agent[Any, Any]) -> list[TextPart]:
    """Return the parts of an agent; see `part_texts`."""
    parts: list[TextPart] = []
    examples: ExamplesPrompt | None = None
    # The layers of a prompter belong to its slots.
    if agent.chain.prompter is None:
        for name, path, prompt in prompt_parts(agent.chain.layers):
            if not _OUTERMOST.fullmatch(path):
                continue
            if isinstance(prompt, ExamplesPrompt) and examples is None:
                examples = prompt
            text = _first_text(prompt)
            if "template" in prompt.model_fields_set and text.strip():
                parts.append(TextPart(name, text, "prompt", prompt, path))
    for name, tool in described_tools(agent.definition.tools.argument).items():
        parts.append(TextPart(f"tools.{name}.description", tool.description, "description", tool=name))
    if examples is not None:
        parts.append(TextPart(EXAMPLES, examples_text(examples.examples), "examples", examples))
    return parts


def chosen_parts(agent: Agent[Any, Any], names: Sequence[str]) -> list[TextPart]:
    """Return the parts with names.

    Raises:
        ImproveError: A name is unknown. The error lists all unknown names.
    """
    parts = {part.name: part for part in text_parts(agent)}
    if isinstance(names, str) or not names:
        raise ImproveError(f"parts: expected a list of names, such as {[*parts][:3]}, got {names!r:.60}", name="parts")
    problems = [f"unknown part {name!r:.80}{nearest(str(name), parts)}" for name in names if name not in parts]
    if problems:
        raise ImproveError(
            "parts: " + "; ".join(problems), name="parts", problems=[("parts", each) for each in problems]
        )
    return [parts[name] for name in dict.fromkeys(names)]


def with_texts(agent: Agent[Any, Any], parts: Iterable[TextPart], texts: Mapping[str, str]) -> Agent[Any, Any]:
    """Return an agent with other texts of its parts.

    Args:
        agent: The agent.
        parts: The parts.
        texts: Valid texts by the name of the part; see `part_problem`.
    """
    changed = [part for part in parts if texts[part.name] != part.text]
    layers = agent.chain.layers
    descriptions: dict[str, str] = {}
    for part in changed:
        if part.kind == "description":
            descriptions[part.tool] = texts[part.name]
        elif part.kind == "prompt":
            place, _, index = part.path.rstrip("]").partition("[")
            prompts = list(getattr(layers, place))
            prompts[int(index)] = _with_text(prompts[int(index)], texts[part.name])
            layers = layers.model_copy(update={place: tuple(prompts)})
    if layers is not agent.chain.layers:
        agent = agent.with_changes(layers=layers)
    if descriptions:
        agent = agent.with_changes(tools=described(agent.definition.tools.argument, descriptions))
    for part in changed:
        if part.kind == "examples":
            agent = with_examples(agent, examples_of(texts[part.name]))
    return agent


def part_problem(part: TextPart, text: str) -> str:
    """Return the reason why a text cannot replace the text of a part; empty if it can.

    A prompt must compile, and read the names and kwargs that it read before, no others.
    """
    if not text.strip():
        return "the text is empty"
    if len(text) > _MAX_CHARACTERS:
        return f"the text has {len(text):,} characters, at most {_MAX_CHARACTERS:,} are allowed"
    if control := _CONTROL.search(text):
        return f"the text contains the control character {control[0]!r}"
    if part.prompt is None or part.kind == "examples":
        return ""
    if part.prompt.template.engine == "literal":
        if _SLOT.search(text) and not _SLOT.search(part.text):
            return "the text is no template: {{ and {% would be sent unchanged"
        return ""
    try:
        changed = _with_text(part.prompt, text)
    except PromptError as error:
        return str(error)
    return _lost_names(part.prompt, changed)


def _lost_names(before: BasePrompt, after: BasePrompt) -> str:
    old, new = before.template, after.template
    missing, added = sorted(old.names.keys() - new.names.keys()), sorted(new.names.keys() - old.names.keys())
    if missing:
        return f"the text must read {', '.join(missing)}, as before"
    if added:
        return f"the text must not read {', '.join(added)}"
    if before.additional_kwargs_schema != after.additional_kwargs_schema or old.required != new.required:
        kwargs = (before.additional_kwargs_schema or {}).get("properties", {})
        return f"the text must require the same kwargs as before: {', '.join(kwargs) or 'none'}"
    return ""


def _first_text(prompt: BasePrompt) -> str:
    text = prompt.template.text
    if isinstance(text, str):
        return text
    return next(iter(text.values()))


def _with_text(prompt: BasePrompt, text: str) -> BasePrompt:
    return prompt.model_copy(update={"template": prompt.template.with_text(text)})


def examples_text(examples: Iterable[Example]) -> str:
    """Return examples as lines of JSON."""
    return "\n".join(
        [json.dumps({"input": each.input, "output": each.output}, ensure_ascii=False) for each in examples]
    )


def examples_of(text: str) -> list[Example]:
    """Return the examples of lines of JSON."""
    return [Example(**json.loads(line)) for line in text.split("\n") if line]
