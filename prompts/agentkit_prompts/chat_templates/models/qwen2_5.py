"""Qwen2.5, QwQ and Qwen3: tools are listed in the system message, results come as blocks of a user message."""

from __future__ import annotations

from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task

__all__ = ["Qwen25Template"]


class Qwen25Template(RoleMarkerTemplate):
    """Messages end with `eosys`, tool results with `eoh`. A reply is always opened anew: no message is left open.

    Neighbouring tool messages share one user message. Without tools, LMDeploy leaves out a leading system message
    that does not open a sequence, and so does `messages2prompt`.
    """

    tools: str = ""
    eotools: str = ""

    says_tools: ClassVar[bool] = True
    block_tokens: ClassVar[tuple[str, ...]] = (
        *("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    )

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The markers, and the tags around tools, calls and results."""
        return tuple(dict.fromkeys((*super().control_tokens, *self.block_tokens)))

    def write(self, turns: list[Turn], task: Task) -> str:
        """Return the text of the turns."""
        leads = bool(turns) and turns[0]["role"] == "system"
        parts = [self.bos] if task.sequence_start or self.bos_always else []
        system = turns[0]["content"] if leads else self.meta_instruction
        if task.tools:
            said = [f'{self.separator}{{"type": "function", "function": {json_text(tool)}}}' for tool in task.tools]
            parts += (self.system, system or "", self.tools, *said, self.eotools, self.eosys)
        elif system is not None and (task.sequence_start or (leads and task.strict)):
            parts += (self.system, system, self.eosys)
        begins = {"system": self.system, "user": self.user, "assistant": self.assistant}
        end, results = self.eosys, False
        for turn in turns[1:] if leads else turns:
            role = turn["role"]
            if role == "tool":
                parts += ("" if results else self.user.strip(), self._result(turn))
                results = True
                continue
            if results:
                parts.append(self.eoh)
                results = False
            if len(turn) == 2:
                parts += (begins[role], turn["content"], end)
            else:
                parts += (begins[role], turn["content"], *self._calls(turn, task), end)
        if results:
            parts.append(self.eoh)
        if task.add_generation_prompt:
            parts += (self.assistant, self._reply_start(task))
        return "".join(parts)

    def _result(self, turn: Turn) -> str:
        line = self.separator
        return f"{line}<tool_response>{line}{turn['content']}{line}</tool_response>"

    def _calls(self, turn: Turn, task: Task) -> list[str]:
        line = self.separator
        calls = [json_text({"name": name, "arguments": arguments}) for name, arguments in calls_of(turn)]
        said = [f"{line}<tool_call>{line}{call}{line}</tool_call>" for call in calls]
        is_silent = not turn["content"] if task.strict else turn.get("is_silent", False)
        if said and is_silent:
            said[0] = said[0].removeprefix(line)  # the marker of the assistant ends in a line break already
        return said
