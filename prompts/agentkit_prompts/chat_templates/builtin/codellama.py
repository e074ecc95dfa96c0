"""Code Llama: chat as Llama 2, and three tasks that are not chat."""

from __future__ import annotations

from typing import Any, ClassVar

from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate
from agentkit_prompts.errors import ChatTemplateError

_SAMPLING = {"chat": (0.95, 0.2), "completion": (0.9, 0.2), "python": (0.9, 0.2), "infilling": (0.9, 0.0)}
"""Capability -> default `top_p` and `temperature`."""
_GAP = "<FILL>"


class CodeLlamaTemplate(RoleMarkerTemplate):
    """`capability` is chat, completion or python (the prompt unchanged), or infilling (one `<FILL>` in the prompt).

    Raises:
        ChatTemplateError: An infilling prompt without exactly one `<FILL>`.
    """

    suffix_first: bool = False
    """True if the text after the gap is written before the text before the gap."""

    code_tokens: ClassVar[tuple[str, ...]] = ("<PRE>", "<SUF>", "<MID>", "<EOT>")

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        top_p, temperature = _SAMPLING[self.capability or "chat"]
        self.top_p = fields.get("top_p", top_p)
        self.temperature = fields.get("temperature", temperature)
        if self.capability == "infilling" and self.stop_words is None:
            self.stop_words = ("<EOT>",)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt in the form of the capability."""
        if self.capability == "python":
            return prompt
        if self.capability != "infilling":
            return super().decorate_prompt(prompt, sequence_start)
        if prompt.count(_GAP) != 1:
            raise ChatTemplateError(
                f"{type(self).__name__}: an infilling prompt must contain exactly one {_GAP}, got {prompt.count(_GAP)}",
                template=type(self).__name__,
                name=_GAP,
            )
        before, after = prompt.split(_GAP)
        if self.suffix_first:
            return f"<PRE> <SUF>{after} <MID> {before}"
        return f"<PRE> {before} <SUF>{after} <MID>"
