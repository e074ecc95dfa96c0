"""Payload of a composition: the request of a provider, or the text of a local model with marked control tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agentkit_prompts.chat_templates.guard.control_tokens import tokens_of
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.targets.chat_text import chat_template_of
from agentkit_prompts.errors import PromptError, start_of
from agentkit_prompts.names import nearest
from agentkit_prompts.templates.spans import BREAK

TARGETS = ("openai", "responses", "anthropic", "text")
"""Targets of a payload; `text` is the text for a local model."""
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{512,}+")
_MAX_BASE64 = 48
"""Maximum characters of base64 data in the view."""


def payload_view(composition: Composition, target: str, chat_template: str | None = None) -> dict[str, Any]:
    """Return the payload as pieces of text.

    A piece has its `text` and a `kind`: `control` for a control token of the chat template; `broken` for a control
    token in untrusted text, which a zero-width space breaks; `text` for other text. Base64 data of media is cut.

    Args:
        composition: The composition.
        target: One of `TARGETS`.
        chat_template: Name of a registered chat template, only for `text`; None for text without a chat template.

    Raises:
        PromptError: The target is unknown, or the template cannot write a part of the conversation.
    """
    if target not in TARGETS:
        raise PromptError(f"target: unknown target {target!r:.80}{nearest(str(target)[:80], TARGETS)}", name="target")
    if target != "text":
        if chat_template is not None:
            raise PromptError("chat_template: only the target 'text' has a chat template", name="chat_template")
        body = getattr(composition, f"to_{target}")()
        # Megabytes of base64 would make the page slow.
        text = _BASE64.sub(_shortened_base64, json.dumps(body, ensure_ascii=False, indent=2, default=str))
        return {"target": target, "pieces": [{"text": text, "kind": "text"}]}
    if chat_template is None:
        return {"target": target, "pieces": [{"text": composition.text, "kind": "text"}]}
    template = chat_template_of(_registered(chat_template), composition.context.now)
    tokens = tokens_of(template)
    text = composition.to_text(template)
    marks = [(match.start, match.end, "control") for match in tokens.find(text)]
    for token in tokens:
        broken = f"{token[:1]}{BREAK}{token[1:]}"
        marks += [(match.start(), match.end(), "broken") for match in re.finditer(re.escape(broken), text)]
    return {"target": target, "chat_template": chat_template, "pieces": list(_marked(text, sorted(marks)))}


def _registered(name: str) -> str:
    """Return the name of a registered template; a request must not name a file of this machine."""
    if name in CHAT_TEMPLATES:
        return name
    near = nearest(name[:80].lower(), CHAT_TEMPLATES)
    raise PromptError(
        f"chat_template: unknown chat template {name[:80]!r}{near}", name="chat_template", value=name[:80]
    )


def _marked(text: str, marks: list[tuple[int, int, str]]) -> Iterator[dict[str, str]]:
    at = 0
    for start, end, kind in marks:
        # Tokens may overlap: the token that starts first is marked.
        if start < at:
            continue
        if start > at:
            yield {"text": text[at:start], "kind": "text"}
        yield {"text": text[start:end], "kind": kind}
        at = end
    if at < len(text):
        yield {"text": text[at:], "kind": "text"}


def _shortened_base64(match: re.Match[str]) -> str:
    text = match[0]
    # Text with few different characters, such as a long line of dashes, is not base64.
    if len(set(text[:256])) < 20:
        return text
    return start_of(text, _MAX_BASE64)
