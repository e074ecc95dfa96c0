"""Findings about a chat template: parts of small conversations that it drops, refuses or changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any

from jinja2 import meta

from agentkit_prompts.chat_templates.generation import has_generation
from agentkit_prompts.chat_templates.jinja.clock import CLOCK
from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.chat_templates.jinja.probe import CALL, NAME, TOOL, WORD, Probe, conversation_of
from agentkit_prompts.errors import ChatTemplateError

_REQUEST = {"messages", "tools", "add_generation_prompt"}
_GIVEN = {"documents", "bos_token", "eos_token"}
_ANSWERED = "000000000"


@dataclass(frozen=True, slots=True)
class Finding:
    """One limit or property of a chat template."""

    code: str
    """Name of the finding, such as `ignores_tools`."""
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def _user(content: Any = "a") -> dict[str, Any]:
    return {"role": "user", "content": content}


_LATE_SYSTEM = [_user(), {"role": "assistant", "content": "b"}, {"role": "system", "content": WORD}, _user("c")]
_RESULT = {"role": "tool", "tool_call_id": _ANSWERED, "name": NAME, "content": WORD}


def diagnose(source: str, names: Set[str], probe: Probe, with_tools: Probe | None = None) -> Iterator[Finding]:
    """Yield the findings about a template.

    Args:
        source: Text of the template.
        names: Names of the variables that it reads.
        probe: Renderer of small conversations, without conversion.
        with_tools: Renderer with the tool template of the model, if the model has a separate tool template.
    """
    simple = probe.outcome([_user(WORD)], None, False)
    if isinstance(simple, ChatTemplateError):
        yield Finding("refuses_everything", f"a single user message fails: {simple}")
        return
    tooled = with_tools or probe
    arguments: object = {"key": "c"}
    if tooled.arguments == "text":
        arguments = json.dumps(arguments)
    call = CALL(arguments)
    for code, subject, word, messages, tools, asked in (
        ("ignores_tools", "tools", NAME, [_user()], [TOOL], tooled),
        ("drops_tool_calls", "tool calls", NAME, [_user(), call, _RESULT], None, tooled),
        ("ignores_tool_results", "tool results", WORD, [_user(), call, _RESULT], None, tooled),
        ("ignores_system", "system messages", WORD, conversation_of("system", WORD), None, probe),
        ("ignores_late_system", "later system messages", WORD, _LATE_SYSTEM, None, probe),
    ):
        outcome = asked.outcome(messages, tools)
        if isinstance(outcome, ChatTemplateError):
            yield Finding(f"refuses_{code.partition('_')[2]}", f"{subject} make it fail: {outcome}")
        elif word not in outcome:
            yield Finding(code, f"{subject} are dropped")
    yield from _turns(probe)
    yield from _forms(probe, tooled)
    yield from _rest(source, names, probe)


def unreadable_calls(format: str | None) -> Finding:
    """Return the finding about a template whose tool calls cannot be read."""
    reader = "in any known format" if format is None else f"in the format {format!r}"
    why = f"a tool call that the template renders cannot be read {reader}: pass tool_call_format="
    return Finding("unreadable_tool_calls", why)


def _turns(probe: Probe) -> Iterator[Finding]:
    twice = probe.outcome([_user(), _user(WORD)])
    if isinstance(twice, ChatTemplateError):
        yield Finding("needs_alternation", f"two user messages in a row fail: {twice}")
    elif WORD not in twice:
        yield Finding("needs_alternation", "one of two user messages in a row is dropped")
    if not probe.holds(WORD, [{"role": "assistant", "content": WORD}, _user()]):
        yield Finding("needs_user_first", "a conversation cannot start with the assistant")
    thought = {"role": "assistant", "content": "b", "reasoning_content": WORD, "thinking": WORD}
    if not any(probe.holds(WORD, [_user(), thought, *more]) for more in ([], [_user()])):
        yield Finding("drops_reasoning", "the thinking before a reply is left out")
    elif not probe.holds(WORD, [_user(), thought, _user()]):
        yield Finding("drops_reasoning", "the thinking before earlier replies is left out")


def _forms(probe: Probe, tooled: Probe) -> Iterator[Finding]:
    if probe.content("user", "parts") == "text":
        yield Finding("wants_text_content", "content must be text; the normaliser joins parts")
    if probe.content("user", "text") == "parts":
        yield Finding("wants_parts_content", "content must be a list of parts; the normaliser creates a list")
    form = tooled.arguments
    if form == "object":
        yield Finding("wants_object_arguments", "arguments of tool calls must be objects; the normaliser parses text")
    elif form == "text":
        yield Finding("wants_text_arguments", "arguments of tool calls must be JSON text; the normaliser writes it")


def _rest(source: str, names: Set[str], probe: Probe) -> Iterator[Finding]:
    if probe.outcome([_user(WORD)], None, True) == probe.outcome([_user(WORD)], None, False):
        yield Finding("no_generation_prompt", "add_generation_prompt has no effect")
    if not has_generation(source):
        why = "no {% generation %} blocks: loss spans are computed from the text around replies"
        yield Finding("no_generation_blocks", why)
    if CLOCK in source:
        why = "it prints the date of now= or of the run, or its fixed date if it has one"
        yield Finding("reads_clock", why)
    if more := sorted(names - _GIVEN):
        yield Finding("reads_variables", f"render accepts, for this template: {', '.join(more)}")


def read_names(source: str) -> set[str]:
    """Return the names of the variables that a template reads, without the arguments of a request."""
    environment = compiled(source, True).environment
    tree = environment.parse(source)
    return meta.find_undeclared_variables(tree) - environment.globals.keys() - _REQUEST
