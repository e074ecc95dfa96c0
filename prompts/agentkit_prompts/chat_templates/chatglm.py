"""ChatGLM2: numbered rounds of a question and an answer."""

from __future__ import annotations

from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task
from agentkit_prompts.chat_templates.turns import Turn

__all__ = ["ChatGLM2Template"]


class ChatGLM2Template(RoleMarkerTemplate):
    """Every question opens a round and its answer; nothing stands behind an answer.

    A single prompt is always round 1: a template does not remember what it was asked before. The model knows no
    system message. LMDeploy leaves it out, and so does `messages2prompt`; `render` puts it in front of the round.
    """

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The words before question and answer, and the head of a round."""
        return (*super().control_tokens, "[Round ")

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt as the first round, whatever the capability."""
        return self.decorate_prompt(prompt, sequence_start)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt as the first round."""
        return f"{self._question(prompt, 1)}{self.assistant}"

    def write(self, turns: list[Turn], task: Task) -> str:
        """Return the rounds."""
        parts: list[str] = []
        number, is_open = 0, False
        for turn in turns:
            role, text = turn["role"], turn["content"]
            if role == "user":
                if is_open:
                    parts.append(self.assistant)
                number += 1
                parts.append(self._question(text, number))
            elif role == "assistant":
                parts += (self.assistant if is_open or task.strict else "", text)
            elif task.strict:
                parts += (self.assistant if is_open else "", text, self.eoh)
            is_open = role == "user" or (is_open and role != "assistant" and not task.strict)
        if is_open and task.add_generation_prompt:
            parts.append(self.assistant)
        return "".join(parts)

    def _question(self, text: str, number: int) -> str:
        return f"[Round {number}]\n\n{self.user}{text}{self.eoh}"
