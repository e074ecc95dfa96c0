"""Qwen2.5, QwQ and Qwen3: tools are listed in the system message, results come as blocks of a user message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task


class Qwen25Template(RoleMarkerTemplate):
    """Messages end with `eosys`, tool results with `eoh`. A reply always starts with a new message: no message is left
    open.

    Neighbouring tool messages share one user message. Without tools, LMDeploy and `messages2prompt` leave out a leading
    system message that does not open a sequence.
    """

    tools: str = ""
    eotools: str = ""

    writes_tools: ClassVar[bool] = True
    signs: ClassVar[tuple[str, ...] | None] = ()
    leaves_open: ClassVar[bool] = False
    code_tokens: ClassVar[tuple[str, ...]] = (
        *("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    )

    def markers(self) -> dict[str, tuple[str, str]]:
        end = self.eosys
        return {
            "system": (self.system, end),
            "user": (self.user, end),
            "assistant": (self.assistant, end),
            "tool": (self.separator, ""),
        }

    def results(self) -> tuple[str, str]:
        """Return the texts around the user message that neighbouring results share."""
        return self.user.strip(), self.eoh

    def _lines_of_tools(self, task: Task) -> str:
        return "".join([f'{self.separator}{{"type": "function", "function": {text}}}' for text in task.tool_texts])

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the text before all other messages: the system message, with the tools after its text."""
        leads = bool(turns) and turns[0]["role"] == "system"
        bos = self.opening(task)
        system = self.meta_instruction
        if leads:
            system = turns[0]["content"]
        if task.tools:
            return [
                bos,
                self.system,
                system or "",
                f"{self.tools}{self._lines_of_tools(task)}{self.eotools}{self.eosys}",
            ]
        is_written = task.sequence_start or (leads and task.strict)
        if system is None or not is_written:
            return [bos]
        return [bos, self.system, system, self.eosys]

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        role, text = turn["role"], turn["content"]
        begin, end = task.markers[role]
        if role == "tool":
            text = f"<tool_response>{self.separator}{text}{self.separator}</tool_response>"
        elif "tool_calls" in turn:
            text += "".join(self._calls(turn, task))
        return begin, text, end

    def _calls(self, turn: Turn, task: Task) -> list[str]:
        line = self.separator
        calls = [json_text({"name": name, "arguments": arguments}) for name, arguments in calls_of(turn)]
        written = [f"{line}<tool_call>{line}{call}{line}</tool_call>" for call in calls]
        is_silent = turn.get("is_silent", False)
        if task.strict:
            is_silent = not turn["content"]
        if written and is_silent:
            # The assistant marker already ends with a line break.
            written[0] = written[0].removeprefix(line)
        return written
