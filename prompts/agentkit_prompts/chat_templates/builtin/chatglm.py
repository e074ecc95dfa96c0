"""ChatGLM2: numbered rounds of a question and an answer."""

from __future__ import annotations

from typing import ClassVar

from agentkit_prompts.chat_templates.chat_turns import Turn, read_prompt
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task


class ChatGLM2Template(RoleMarkerTemplate):
    """Every question opens a round and its answer; the template writes no text after an answer.

    A single prompt is always round 1, because a template has no state. The model has no system message: LMDeploy and
    `messages2prompt` leave it out; `render` writes it before the round.
    """

    code_tokens: ClassVar[tuple[str, ...]] = ("[Round ",)

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt as the first round, for every capability."""
        return self.decorate_prompt(read_prompt(prompt, type(self).__name__), sequence_start)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt as the first round."""
        return f"[Round 1]\n\n{self.user}{prompt}{self.eoh}{self.assistant}"

    def write(self, turns: list[Turn], task: Task) -> str:
        """Return the rounds."""
        if not task.strict:
            # As in LMDeploy, other messages are left out.
            turns = [turn for turn in turns if turn["role"] in ("user", "assistant")]
        return "".join(self._rounds(turns, task))

    def _rounds(self, turns: list[Turn], task: Task) -> list[str]:
        parts: list[str] = []
        number = 0
        is_open = False
        for turn in turns:
            is_reply = turn["role"] == "assistant"
            if is_open or (is_reply and task.strict):
                parts.append(self.assistant)
            is_open = turn["role"] == "user"
            number += is_open
            parts += self._round(turn, number)
        if is_open and task.add_generation_prompt:
            parts.append(self.assistant)
        return parts

    def _round(self, turn: Turn, number: int) -> list[str]:
        """Return the text of a message in the round of this number."""
        match turn["role"]:
            case "user":
                return [f"[Round {number}]\n\n", self.user, turn["content"], self.eoh]
            case "assistant":
                return [turn["content"]]
            case _:
                return [turn["content"], self.eoh]
