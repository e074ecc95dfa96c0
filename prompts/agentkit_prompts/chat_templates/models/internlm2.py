"""InternLM2 and what is built on it: tools are a system message, their results come from the environment.

Intern-S1 merges tools into the system message, and thinks.
"""

from __future__ import annotations

from typing import Any, ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task

__all__ = ["InternLM2Template", "InternS1Template"]


class InternLM2Template(RoleMarkerTemplate):
    """A message whose `name` is plugin or interpreter says so in its marker."""

    plugin: str = "<|plugin|>"
    interpreter: str = "<|interpreter|>"
    environment: str = "<|im_start|>environment\n"
    eoenv: str = "<|im_end|>\n"

    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator"),
        *("environment", "eoenv", "plugin", "interpreter"),
    )
    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "tool", "environment")
    says_tools: ClassVar[bool] = True
    call_start: ClassVar[str] = "<|action_start|>"
    call_end: ClassVar[str] = "<|action_end|>"

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The markers, and what stands around a tool call."""
        return tuple(dict.fromkeys((*super().control_tokens, self.call_start, self.call_end)))

    def markers(self) -> dict[str, tuple[str, str]]:
        """Return what stands before and behind a message of each role."""
        environment = (self.environment, self.eoenv)
        return {**super().markers(), "tool": environment, "environment": environment}

    def pieces(self, turns: list[Turn], task: Task) -> list[str]:
        """Return three pieces of text for each message."""
        if task.is_plain and not task.tools:
            return super().pieces(turns, task)
        names = {"plugin": self.plugin, "interpreter": self.interpreter}
        markers = self.markers()
        asked: int | None = None
        pieces: list[str] = []
        for index, turn in enumerate(turns):
            begin, end = markers[turn["role"]]
            if len(turn) == 2:
                pieces += (begin, turn["content"], end)
                continue
            speaker = names.get(turn.get("name", "")) or self.speaker_of(turn)
            if speaker:
                begin = f"{begin.strip()} name={speaker}\n"
            if asked is None:
                asked = max((at for at, other in enumerate(turns) if other["role"] == "user"), default=len(turns))
            pieces += (begin, self.text_of(turn, recent=index > asked), end)
        return self.with_tools(turns, pieces, task) if task.tools else pieces

    def speaker_of(self, turn: Turn) -> str:
        """Return what the marker calls the speaker of a message with another name, or nothing."""
        return ""

    def text_of(self, turn: Turn, *, recent: bool) -> str:
        """Return what a message says: its text, then its tool calls. `recent`: the user has not spoken since."""
        return f"{turn['content']}{self._calls(turn, '')}"

    def _calls(self, turn: Turn, end: str) -> str:
        return "".join(
            f"{self.call_start}{self.plugin}\n{json_text({'name': name, 'parameters': arguments})}{end}{self.call_end}"
            for name, arguments in calls_of(turn)
        )

    def with_tools(self, turns: list[Turn], pieces: list[str], task: Task) -> list[str]:
        """Return the pieces with the tools among them: a system message behind a leading one, else the first."""
        begin, end = f"{self.system.strip()} name={self.plugin}\n", self.eosys
        place = 3 if turns and turns[0]["role"] == "system" else 0
        return [*pieces[:place], begin, json_text(task.tools), end, *pieces[place:]]


class InternS1Template(InternLM2Template):
    """Tools stand in the first system message, behind its text; `tool` introduces them.

    A tool message that names its tool comes from the plugin.

    The reasoning of assistant messages since the last message of the user is shown to the model. With
    `enable_thinking=False` the default system message, which asks for reasoning, is left out.
    """

    def opening(self, turns: list[Turn], task: Task) -> str:
        """Return what stands before the messages; with tools their system message takes its place."""
        if task.tools or task.enable_thinking is False:
            return self.bos if task.sequence_start or self.bos_always else ""
        return super().opening(turns, task)

    def speaker_of(self, turn: Turn) -> str:
        """Return what the marker calls the speaker of a message that has a name."""
        return self.plugin if turn["role"] == "tool" and "name" in turn else ""

    def text_of(self, turn: Turn, *, recent: bool) -> str:
        """Return what a message says: its reasoning while it matters, its text, then its tool calls."""
        text = f"{turn['content']}{self._calls(turn, chr(10))}"
        reasoning = turn.get("reasoning_content")
        return text if reasoning is None or not recent else f"<think>\n{reasoning}\n</think>\n{text}"

    def with_tools(self, turns: list[Turn], pieces: list[str], task: Task) -> list[str]:
        """Return the pieces with the tools in the first system message."""
        said: Any = json_text(task.tools, indent=2)
        tools = f"{self.tool}{said}{self.eotool}"
        begin = f"{self.system.strip()} name={self.plugin}\n"
        if turns and turns[0]["role"] == "system":
            return [begin, f"{pieces[1]}{tools}", *pieces[2:]]
        if self.meta_instruction is None or not task.sequence_start or task.enable_thinking is False:
            return [begin, tools.lstrip(), self.eosys, *pieces]
        return [begin, f"{self.meta_instruction}{tools}", self.eosys, *pieces]

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The markers, what stands around a tool call, and what stands around reasoning."""
        return tuple(dict.fromkeys((*super().control_tokens, "<think>", "</think>")))
