"""Small chat templates: correct templates, and templates that inspect the text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkit.prompts import Message, ToolSpec
from agentkit.prompts.chat_templates import ChatTemplateError

_ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)


def _tojson(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise ChatTemplateError(message, refusal=message)


_ENVIRONMENT.filters["tojson"] = _tojson
_ENVIRONMENT.filters["fromjson"] = json.loads
_ENVIRONMENT.globals["refuse"] = _refuse


class Small:
    """Chat template of a few lines of Jinja. `drawn` counts the renderings."""

    def __init__(self, source: str, control_tokens: Sequence[str], **model: Any) -> None:
        self._template = _ENVIRONMENT.from_string(source)
        self.control_tokens = tuple(control_tokens)
        self.stop_words: Sequence[str] | None = model.get("stop_words")
        self.drawn = 0
        self.rewrites_text = True

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        self.drawn += 1
        return self._template.render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **kwargs
        )


_CHATML_TOKENS = ("<|im_start|>", "<|im_end|>", "<|im_end|>\n")

PLAIN: dict[str, Small] = {
    "chatml": Small(
        "{% for tool in tools or [] %}<tool>{{ tool | tojson }}</tool>\n{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ ' ' + m.name if m.name else '' }}\n{{ m.content | trim }}"
        "{% for call in m.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
        "{{ m.tool_call_id }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        (*_CHATML_TOKENS, "<tool_call>", "</tool_call>", "<tool>", "</tool>"),
        stop_words=["<|im_end|>"],
    ),
    "words": Small(
        "{% for m in messages %}"
        "{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: ', 'tool': 'USER: '}[m.role] }}{{ m.content }}\n"
        "{% for call in m.tool_calls %}{{ call.function.name }} {{ call.function.arguments }}\n{% endfor %}"
        "{% endfor %}ASSISTANT: ",
        ("USER: ", "ASSISTANT: ", "</s>"),
    ),
    "headings": Small(
        "{% for m in messages %}### {{ m.role | capitalize }}:\n{{ m.content }}\n\n{% endfor %}### Assistant:\n",
        ("### System:\n", "### User:\n", "### Assistant:\n", "### Tool:\n", "</s>"),
    ),
    "glued": Small(  # No text is between messages, so two messages can form a token together.
        "<s>{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}{{ call.function.arguments }}"
        "{% endfor %}{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "Human:", "<|a|>", "<|a|><|b|>"),
    ),
    "half written": Small(  # A token is completed around a value.
        "{% for m in messages %}<|{{ m.content }}|>{% endfor %}", ("<|user|>", "<|end|>", "|><|", "[gMASK]sop")
    ),
    "decoding": Small(  # Arguments are parsed and serialized again.
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for call in m.tool_calls %}<call>"
        "{{ (call.function.arguments | fromjson) | tojson }}</call>{% endfor %}{% endfor %}",
        ("[system]", "[user]", "[assistant]", "[tool]", "<call>", "</call>"),
    ),
}
"""Templates that insert values without an inspection."""

INQUISITIVE: dict[str, Small] = {
    "reasoning": Small(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and '</think>' in m.content %}"
        "<think>\n{{ m.content.split('</think>')[0].split('<think>')[-1].strip('\n') }}\n</think>\n\n"
        "{{ m.content.split('</think>')[-1].lstrip('\n') }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n",
        (*_CHATML_TOKENS, "<think>", "</think>"),
    ),
    "poser": Small(  # A user message with the right tags looks like the answer of a tool.
        "{% for m in messages %}{% if m.content.startswith('<tool_response>') %}<|im_start|>tool\n{{ m.content }}"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}",
        (*_CHATML_TOKENS, "<tool_response>", "</tool_response>"),
    ),
    "strict": Small(
        "{% for m in messages %}{% if '<|im_end|>' in m.content and m.role != 'system' %}{{ refuse('no markers') }}"
        "{% endif %}<|im_start|>{{ m.content }}<|im_end|>\n{% endfor %}",
        _CHATML_TOKENS,
    ),
    "loud": Small("{% for m in messages %}<|IM|>{{ m.content | upper }}<|/IM|>{% endfor %}", ("<|IM|>", "<|/IM|>")),
    "ascii": Small(
        "{% for m in messages %}<|m|>{{ m.content | tojson(ensure_ascii=True) }}{% endfor %}", ("<|m|>", "<|/m|>")
    ),
    "cleaning": Small(
        "{% for m in messages %}<|m|>{{ m.content | replace('<|/m|>', '') }}<|/m|>{% endfor %}", ("<|m|>", "<|/m|>")
    ),
    "cutting": Small(  # Removed text joins its neighbours.
        "{% for m in messages %}<|m|>{{ m.content.split('~') | join }}<|/m|>{% endfor %}", ("<|m|>", "<|/m|>")
    ),
    "sorting": Small(
        "{% for m in messages %}<|m|>{{ m.content }}{% for call in m.tool_calls %}"
        "{{ call.function.arguments | fromjson | tojson(sort_keys=True) }}"
        "{% if call.function.name == 'python' %}<|py|>{% endif %}{% endfor %}<|/m|>{% endfor %}",
        ("<|m|>", "<|/m|>", "<|py|>"),
    ),
}
"""Templates with output that depends on the text."""
