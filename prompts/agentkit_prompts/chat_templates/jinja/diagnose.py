"""What a chat template has no place for, refuses, or does in its own way, found by rendering small conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jinja2 import meta, nodes

from agentkit_prompts.chat_templates.generation import has_generation
from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.chat_templates.jinja.probe import CALL, NAME, TOOL, WORD, Probe, conversation_of
from agentkit_prompts.errors import ChatTemplateError

__all__ = ["Finding", "diagnose"]

_GIVEN = {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"}
_ANSWERED = "000000000"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a chat template before it is used."""

    code: str
    """What it is in one word, such as `ignores_tools`."""
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def _user(content: Any = "a") -> dict[str, Any]:
    return {"role": "user", "content": content}


def _late_system() -> list[dict[str, Any]]:
    return [_user(), {"role": "assistant", "content": "b"}, {"role": "system", "content": WORD}, _user("c")]


_RESULT = {"role": "tool", "tool_call_id": _ANSWERED, "name": NAME, "content": WORD}


def diagnose(source: str, probe: Probe, with_tools: Probe | None = None) -> list[Finding]:
    """Return what is to know about a template.

    Args:
        source: Its text.
        probe: Renders small conversations with it, as they are.
        with_tools: Renders them with the template that the model has for tools, where that is another one.
    """
    simple = probe.outcome([_user(WORD)], None, False)
    if isinstance(simple, ChatTemplateError):
        return [Finding("refuses_everything", f"a single user message fails: {simple}")]
    tooled = with_tools or probe
    call = CALL('{"key": "c"}' if tooled.arguments() == "text" else {"key": "c"})
    found: list[Finding] = []
    for ignored, refused, what, word, messages, tools, asked in (
        ("ignores_tools", "refuses_tools", "tools", NAME, [_user()], [TOOL], tooled),
        ("drops_tool_calls", "refuses_tool_calls", "tool calls", NAME, [_user(), call, _RESULT], None, tooled),
        ("ignores_tool_results", "refuses_tool_results", "tool results", WORD, [_user(), call, _RESULT], None, tooled),
        ("ignores_system", "refuses_system", "system messages", WORD, conversation_of("system", WORD), None, probe),
        ("ignores_late_system", "refuses_late_system", "later system messages", WORD, _late_system(), None, probe),
    ):
        found += _lost(ignored, refused, what, asked.outcome(messages, tools), word)
    found += _turns(probe)
    found += _forms(probe, tooled)
    found += _rest(source, probe)
    return found


def _lost(ignored: str, refused: str, what: str, outcome: str | ChatTemplateError, word: str) -> list[Finding]:
    if isinstance(outcome, ChatTemplateError):
        return [Finding(refused, f"{what} make it fail: {outcome}")]
    return [] if word in outcome else [Finding(ignored, f"{what} leave no trace in the text")]


def _turns(probe: Probe) -> list[Finding]:
    found: list[Finding] = []
    twice = probe.outcome([_user(), _user(WORD)])
    if isinstance(twice, ChatTemplateError):
        found.append(Finding("needs_alternation", f"two user messages in a row fail: {twice}"))
    elif WORD not in twice:
        found.append(Finding("needs_alternation", "of two user messages in a row one is lost"))
    first = probe.outcome([{"role": "assistant", "content": WORD}, _user()])
    if isinstance(first, ChatTemplateError) or WORD not in first:
        found.append(Finding("needs_user_first", "a conversation cannot start with the assistant"))
    thought = {"role": "assistant", "content": "b", "reasoning_content": WORD, "thinking": WORD}
    if not any(probe.holds(WORD, [_user(), thought, *more]) for more in ([], [_user()])):
        found.append(Finding("drops_reasoning", "what the model thought before a reply is left out"))
    elif not probe.holds(WORD, [_user(), thought, _user()]):
        found.append(Finding("drops_reasoning", "what the model thought before earlier replies is left out"))
    return found


def _forms(probe: Probe, tooled: Probe) -> list[Finding]:
    found: list[Finding] = []
    if probe.content("user", "parts") == "text":
        found.append(Finding("wants_text_content", "content must be text; the normaliser joins parts"))
    if probe.content("user", "text") == "parts":
        found.append(Finding("wants_parts_content", "content must be a list of parts; the normaliser makes one"))
    form = tooled.arguments()
    if form == "object":
        found.append(
            Finding("wants_object_arguments", "arguments of tool calls must be objects; the normaliser parses")
        )
    elif form == "text":
        found.append(
            Finding("wants_text_arguments", "arguments of tool calls must be JSON text; the normaliser writes it")
        )
    return found


def _rest(source: str, probe: Probe) -> list[Finding]:
    found: list[Finding] = []
    if probe.outcome([_user(WORD)], None, True) == probe.outcome([_user(WORD)], None, False):
        found.append(Finding("no_generation_prompt", "add_generation_prompt makes no difference"))
    if not has_generation(source):
        found.append(
            Finding(
                "no_generation_blocks", "no {% generation %} blocks: loss spans come from what it writes around replies"
            )
        )
    names = _read_names(source)
    if "strftime_now" in names:
        found.append(Finding("reads_clock", "it prints today's date: pass now=, or its own fixed date stands there"))
    if more := sorted(names - _GIVEN):
        found.append(Finding("reads_variables", f"render takes, for this template: {', '.join(more)}"))
    return found


def _read_names(source: str) -> set[str]:
    """Return the names a template reads from outside; one that it also sets counts when it asks whether it is there."""
    environment = compiled(source, True).environment
    tree = environment.parse(source)
    stored = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    asked = {
        test.node.name
        for test in tree.find_all(nodes.Test)
        if test.name in ("defined", "undefined") and isinstance(test.node, nodes.Name)
    }
    return meta.find_undeclared_variables(tree) - environment.globals.keys() - (stored - asked)
