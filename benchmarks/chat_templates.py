"""Rendering of conversations with chat templates.

Workloads: `role_markers`, a conversation of 1,000 turns (2,000 messages) as plain dicts; its limit is the same text
joined by hand. `jinja`, 20 turns with templates of three kinds; its limit is Jinja's immutable sandbox used directly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from harness import Figure, figures, interleave, main
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkit.prompts import Message
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, JinjaChatTemplate

TURNS = 1000

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TURN_BY_TURN = """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|header|>system<|end|>\\n\\n' + system + '<|eot|>' }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate') }}
    {%- endif %}
    {{- '<|header|>' + message.role + '<|end|>\\n\\n' + message.content | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|end|>\\n\\n' }}{%- endif %}
"""
WITH_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if call.function %}{%- set call = call.function %}{%- endif %}
                {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
                {{- call.arguments if call.arguments is string else call.arguments | tojson }}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def role_markers(rounds: int) -> Iterable[Figure]:
    """Render 1,000 turns with declarative templates and with templates written in Python."""
    messages = [
        message
        for number in range(TURNS)
        for message in (
            {"role": "user", "content": f"Question {number}: what is {number} plus {number}?"},
            {"role": "assistant", "content": f"It is {2 * number}."},
        )
    ]
    messages.append({"role": "user", "content": "And the sum of all of them?"})
    typed = [Message(message["role"], message["content"]) for message in messages]  # type: ignore[arg-type]
    begins = {"user": "<|im_start|>user\n", "assistant": "<|im_start|>assistant\n"}
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"

    def by_hand() -> str:
        texts = [f"{begins[message['role']]}{message['content']}<|im_end|>\n" for message in messages]
        return f"{system}{''.join(texts)}<|im_start|>assistant\n"

    qwen = CHAT_TEMPLATES.get("qwen")()
    assert qwen.render(messages) == qwen.render(typed) == by_hand()
    candidates = {"by hand": lambda n: [by_hand() for _ in range(n)]}
    for name in ("qwen", "internlm2", "llama3_1", "qwen2d5", "chatglm"):
        template = CHAT_TEMPLATES.get(name)()
        candidates[name] = lambda n, template=template: [template.render(messages) for _ in range(n)]  # type: ignore[misc]
    candidates["qwen, Message"] = lambda n: [qwen.render(typed) for _ in range(n)]
    yield from figures("role markers, 1,000 turns", interleave(candidates, 20, rounds))


def _conversation(turns: int, with_tools: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You answer in one sentence. " * 4 + "Always."}]
    for number in range(turns):
        messages.append(
            {"role": "user", "content": f"Question {number}: " + "what does the report say of it? " * 5 + "?"}
        )
        if with_tools and number % 3 == 0:
            call = {"name": "search", "arguments": {"query": f"report {number}", "limit": 3}}
            tool_calls = [{"id": f"{number:09d}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": "", "tool_calls": tool_calls})
            tool_result = {
                "role": "tool",
                "tool_call_id": f"{number:09d}",
                "name": "search",
                "content": f"Line {number}.",
            }
            messages.append(tool_result)
        messages.append({"role": "assistant", "content": f"Answer {number}: " + "it cites this or that. " * 9 + "."})
    return [*messages, {"role": "user", "content": "And in short?"}]


def jinja(rounds: int) -> Iterable[Figure]:
    """Render 20 turns with the sandbox, then with limits off, limits on, and limits on without normalisation."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], cache_size=0
    )
    sandbox.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": schema}}
    for name, source, tools in (
        ("ChatML", CHATML, None),
        ("alternating", TURN_BY_TURN, None),
        ("tools", WITH_TOOLS, [tool]),
    ):
        messages = _conversation(20, tools is not None)
        direct = sandbox.from_string(source)
        variables = {"messages": messages, "tools": tools, "add_generation_prompt": True, "bos_token": "<s>"}
        ours = {
            "limits off": JinjaChatTemplate(source, bos_token="<s>", limits=None),
            "limits on": JinjaChatTemplate(source, bos_token="<s>"),
            "raw, limits on": JinjaChatTemplate(source, bos_token="<s>", normalise=False),
        }
        assert {template.render(messages, tools) for template in ours.values()} == {direct.render(variables)}
        candidates = {
            "sandbox": lambda n, direct=direct, variables=variables: [direct.render(variables) for _ in range(n)]
        }
        for label, template in ours.items():
            candidates[label] = lambda n, template=template, messages=messages, tools=tools: [  # type: ignore[misc]
                template.render(messages, tools) for _ in range(n)
            ]
        yield from figures(f"Jinja, {name}", interleave(candidates, 400, rounds))


if __name__ == "__main__":
    main(__doc__, {"role_markers": role_markers, "jinja": jinja})
