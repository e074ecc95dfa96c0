"""Llama 3.1 and 3.2: tools are described in the system message, a call ends with a separate token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task


class Llama31Template(RoleMarkerTemplate):
    """`knowledge` (dates) is before the default system message, `tool` and `eotool` are around the tools.

    An assistant message that calls a tool ends with `eom`. LMDeploy and `messages2prompt` write only calls that the
    model wrote as text, and repeat the tools in every system message. `render` writes all calls, in the format that the
    system message requests, and the tools once.
    """

    knowledge: str = ""
    ipython: str = "<|start_header_id|>ipython<|end_header_id|>\n\n"
    eoi: str = "<|eot_id|>"
    eom: str = "<|eom_id|>"

    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "ipython", "eoi", "eom"),
    )
    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "tool", "ipython")
    writes_tools: ClassVar[bool] = True
    signs: ClassVar[tuple[str, ...] | None] = ("<|python_tag|>", "</function>")
    """Signs of a tool call in the text of an assistant message."""
    code_tokens: ClassVar[tuple[str, ...]] = ("<|python_tag|>", "</function>", "<function=")

    def markers(self) -> dict[str, tuple[str, str]]:
        ipython = (self.ipython, self.eoi)
        call = (self.assistant, self.eom)
        return {**super().markers(), "tool": ipython, "ipython": ipython, "assistant call": call}

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the text before all other messages: the system message, with the tools before its text."""
        bos, tools = self.opening(task), self._tools(task)
        if turns and turns[0]["role"] == "system":
            return [bos, f"{self.system}{tools}", turns[0]["content"], self.eosys]
        if self.meta_instruction is not None and task.sequence_start and turns:
            return [self.bos, f"{self.system}{self.knowledge}{tools}", self.meta_instruction, self.eosys]
        # The tools need a system message, but the conversation has none.
        if task.strict and task.tools:
            return [f"{bos}{self.system}{self.knowledge}{tools}{self.eosys}"]
        return [bos]

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        role, text = turn["role"], turn["content"]
        begin, end = task.markers[role]
        if role == "assistant":
            if task.strict and "tool_calls" in turn:
                text += "".join(
                    f"<function={name}>{json_text(arguments)}</function>" for name, arguments in calls_of(turn)
                )
            if "<|python_tag|>" in text or "</function>" in text:
                begin, end = task.markers["assistant call"]
        elif role == "system" and not task.strict:
            text = f"{self._tools(task)}{text}"
        return begin, text, end

    def _tools(self, task: Task) -> str:
        """Return the tools as text; an empty list of tools counts as tools."""
        if task.tools is None:
            return ""
        lines = [
            f"Use the function '{tool['name']}' to: {tool.get('description', '')}\n{text}\n"
            for tool, text in zip(task.tools, task.tool_texts, strict=True)
        ]
        return f"{self.tool}{''.join(lines)}{self.eotool}"
