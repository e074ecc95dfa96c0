"""InternLM2 and derived models: tools are a system message, and their results come from the environment.

Intern-S1 merges tools into the system message, and supports thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task


class InternLM2Template(RoleMarkerTemplate):
    """Template of InternLM2. Messages named `plugin` or `interpreter` have the name in their role marker."""

    plugin: str = "<|plugin|>"
    interpreter: str = "<|interpreter|>"
    environment: str = "<|im_start|>environment\n"
    eoenv: str = "<|im_end|>\n"

    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator"),
        *("environment", "eoenv", "plugin", "interpreter"),
    )
    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "tool", "environment")
    writes_tools: ClassVar[bool] = True
    signs: ClassVar[tuple[str, ...] | None] = ()
    call_start: ClassVar[str] = "<|action_start|>"
    call_end: ClassVar[str] = "<|action_end|>"
    code_tokens: ClassVar[tuple[str, ...]] = (call_start, call_end)

    def markers(self) -> dict[str, tuple[str, str]]:
        """Return the texts before and after a message, by role, or by role and speaker."""
        environment = (self.environment, self.eoenv)
        markers = {**super().markers(), "tool": environment, "environment": environment}
        for role, (begin, end) in tuple(markers.items()):
            markers[f"{role} plugin"] = f"{begin.strip()} name={self.plugin}\n", end
            markers[f"{role} interpreter"] = f"{begin.strip()} name={self.interpreter}\n", end
        return markers

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        role, text = turn["role"], turn["content"]
        has_only_role_and_content = len(turn) == 2
        if has_only_role_and_content:
            begin, end = task.markers[role]
            return begin, text, end
        begin, end = task.markers[f"{role} {self.speaker_of(turn)}".strip()]
        return begin, self.text_of(turn, recent=recent), end

    def speaker_of(self, turn: Turn) -> str:
        """Return plugin or interpreter if it is the sender of a message, else an empty text."""
        name = turn.get("name", "")
        return name if name in ("plugin", "interpreter") else ""

    def text_of(self, turn: Turn, *, recent: bool) -> str:
        """Return the text of a message, then its tool calls. `recent` is True if no user message follows."""
        return f"{turn['content']}{self._calls(turn, '')}"

    def _calls(self, turn: Turn, before_call_end: str) -> str:
        return "".join(
            f"{self.call_start}{self.plugin}\n{json_text({'name': name, 'parameters': arguments})}"
            f"{before_call_end}{self.call_end}"
            for name, arguments in calls_of(turn)
        )

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the pieces of text before all other messages; tools are a system message after the first."""
        head = super().head(turns, task)
        if task.tools:
            begin, end = task.markers["system plugin"]
            head += (begin, f"[{', '.join(task.tool_texts)}]", end)
        return head


class InternS1Template(InternLM2Template):
    """Tools are in the first system message, after its text; `tool` introduces them.

    A tool message that names its tool is attributed to the plugin.

    The reasoning of assistant messages since the last message of the user is shown to the model. With
    `enable_thinking=False` the default system message, which requests reasoning, is left out.
    """

    code_tokens: ClassVar[tuple[str, ...]] = (*InternLM2Template.code_tokens, "<think>", "</think>")

    def _has_default(self, task: Task) -> bool:
        """True if the template writes its default system message for messages without one."""
        return self.meta_instruction is not None and task.sequence_start and task.enable_thinking is not False

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the pieces of text before all other messages: the system message, with the tools after its text."""
        bos = self.opening(task)
        starts_with_system = bool(turns) and turns[0]["role"] == "system"
        has_system = starts_with_system or self._has_default(task)
        if not task.tools and has_system:
            return RoleMarkerTemplate.head(self, turns, task)
        if not task.tools:
            return [bos]
        begin, end = task.markers["system plugin"]
        tools = f"{self.tool}{json_text(task.tools, indent=2)}{self.eotool}"
        if not has_system:
            return [bos, begin, tools.lstrip(), end]
        text = self.meta_instruction or ""
        if starts_with_system:
            _, text, _ = self.piece(turns[0], task)
        return [bos, begin, text, f"{tools}{end}"]

    def speaker_of(self, turn: Turn) -> str:
        """Return plugin for a tool message with a tool name or with the name plugin."""
        if turn["role"] == "tool" and "name" in turn:
            return "plugin"
        return super().speaker_of(turn)

    def text_of(self, turn: Turn, *, recent: bool) -> str:
        """Return the reasoning of a recent message, its text, then its tool calls."""
        calls = self._calls(turn, "\n")
        text = turn["content"] + calls
        if recent and "reasoning_content" in turn:
            return f"<think>\n{turn['reasoning_content']}\n</think>\n{text}"
        return text
