"""Llama 3.1 and 3.2: tools are described in the system message, a call ends with a token of its own."""

from __future__ import annotations

from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task

__all__ = ["Llama31Template"]


class Llama31Template(RoleMarkerTemplate):
    """`knowledge` (dates) stands before the default system message, `tool` and `eotool` around the tools.

    An assistant message that calls a tool ends with `eom`. LMDeploy writes calls only where the model wrote them as
    text, and the tools again in every system message; so does `messages2prompt`. `render` writes all calls, in the
    form that the system message asks for, and the tools once.
    """

    knowledge: str = ""
    ipython: str = "<|start_header_id|>ipython<|end_header_id|>\n\n"
    eoi: str = "<|eot_id|>"
    eom: str = "<|eom_id|>"

    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "ipython", "eoi", "eom"),
    )
    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "tool", "ipython")
    says_tools: ClassVar[bool] = True
    call_signs: ClassVar[tuple[str, ...]] = ("<|python_tag|>", "</function>")
    """What an assistant message holds that calls a tool."""

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The markers, and what opens and ends a tool call."""
        return tuple(dict.fromkeys((*super().control_tokens, *self.call_signs, "<function=")))

    def markers(self) -> dict[str, tuple[str, str]]:
        """Return what stands before and behind a message of each role."""
        ipython = (self.ipython, self.eoi)
        return {**super().markers(), "tool": ipython, "ipython": ipython}

    def opening(self, turns: list[Turn], task: Task) -> str:
        """Return what stands before the messages."""
        plain = super().opening(turns, task)
        if self.meta_instruction is None or not task.sequence_start or not turns or turns[0]["role"] == "system":
            if task.strict and task.tools and turns[0]["role"] != "system":  # tools, and nothing to put them into
                return f"{plain}{self.system}{self.knowledge}{self._tools(task)}{self.eosys}"
            return plain
        return f"{self.bos}{self.system}{self.knowledge}{self._tools(task)}{self.meta_instruction}{self.eosys}"

    def pieces(self, turns: list[Turn], task: Task) -> list[str]:
        """Return three pieces of text for each message."""
        markers = self.markers()
        tag, end_of_call = self.call_signs
        tools = self._tools(task)
        pieces: list[str] = []
        for turn in turns:
            role, text = turn["role"], turn["content"]
            begin, end = markers[role]
            if role == "assistant":
                if task.strict and "tool_calls" in turn:
                    calls = [f"<function={name}>{json_text(said)}{end_of_call}" for name, said in calls_of(turn)]
                    text += "".join(calls)
                if tag in text or end_of_call in text:
                    end = self.eom
            elif role == "system" and (not pieces or not task.strict):
                text = f"{tools}{text}"
            pieces += (begin, text, end)
        return pieces

    def _tools(self, task: Task) -> str:
        """Return the tools as text; an empty list of tools counts as tools."""
        if task.tools is None:
            return ""
        said = [
            f"Use the function '{tool['name']}' to: {tool.get('description', '')}\n{json_text(tool)}\n"
            for tool in task.tools
        ]
        return f"{self.tool}{''.join(said)}{self.eotool}"
