"""Tool calls in the documentation of each family of models: complete, in pieces, damaged, and hostile."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.models.completion.functionary import FunctionaryReply
from agentkit.models.completion.harmony import HarmonyReply
from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.prompts import Message, ToolCall, ToolSpec
from agentkit.prompts.chat_templates import (
    CHAT_TEMPLATES,
    TOOL_CALL_FORMATS,
    ChatTemplateError,
    JinjaChatTemplate,
)
from agentkit_prompts.chat_templates.tool_calls.argument_types import typed
from agentkit_prompts.chat_templates.tool_calls.formats import checked_format, forms_of
from tests.cases import collected
from tests.effort import pairs, thinned, tries
from tests.paths import CONFORMANCE

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "object"},
        "on": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"$ref": "#/$defs/Unit"},
    },
    "$defs": {"Unit": {"enum": ["C", "F"]}},
}
SCHEMAS = {"get_weather": PARAMETERS, "get_time": {"type": "object", "properties": {"city": {"type": "string"}}}}
OSLO = ("get_weather", {"city": "Oslo"})
LIMA = ("get_time", {"city": "Lima"})
FULL = ("get_weather", {"city": "São\nPaulo", "days": 3, "tags": ["a", "b]"], "deep": {"k": [1, None]}, "on": True})
ONE = '{"city": "Oslo"}'

DOCUMENTED = [
    (
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_time>\n<parameter=city>\nLima\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "glm4_5",
        "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
        "<tool_call>get_time<arg_key>city</arg_key><arg_value>Lima</arg_value></tool_call>",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + ONE + "\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n"
        '{"city": "Lima"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + ONE + "<｜tool▁call▁end｜>"
        '<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{"city": "Lima"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" + ONE + ""
        "<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>"
        '{"city": "Lima"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    ("llama4", "[get_weather(city='Oslo'), get_time(city=\"Lima\")]"),
    ("llama4", "<|python_start|>[get_weather(city='Oslo'), get_time(city='Lima')]<|python_end|>"),
    ("llama3", '[get_weather(city="Oslo"), get_time(city="Lima")]'),
    ("phi4", 'functools[{"name": "get_weather", "arguments": ' + ONE + '}, {"name": "get_time", "arguments": '
     '{"city": "Lima"}}]'),
    ("gemma3", "```tool_code\nprint(get_weather(city='Oslo'))\nget_time(city='Lima')\n```"),
    ("gemma3", "[get_weather(city='Oslo'), get_time(city='Lima')]"),
    (
        "functiongemma",
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>}<end_function_call>"
        "<start_function_call>call:get_time{city:<escape>Lima<escape>}<end_function_call>",
    ),
    (
        "gemma4",
        '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>}<tool_call|>'
        '<|tool_call>call:get_time{city:<|"|>Lima<|"|>}<tool_call|>',
    ),
    ("seed_oss", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n</function>\n"
     "</seed:tool_call><seed:tool_call><function=get_time><parameter=city>Lima</parameter></function></seed:tool_call>"),
    ("lfm2", "<|tool_call_start|>[get_weather(city='Oslo'), get_time(city='Lima')]<|tool_call_end|>"),
    (
        "deepseek_v3_2",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">'
        'Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name="get_time">\n<｜DSML｜parameter name="city" '
        'string="true">Lima</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    ),
    (
        "deepseek_v3_2",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n' + ONE + "\n</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="get_time">{"city": "Lima"}</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    ),
    (
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
        '<invoke name="get_time">\n<parameter name="city">Lima</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    (
        "minicpm",
        "<|tool_call_start|>\n```python\nget_weather(city='Oslo')\nget_time(city=\"Lima\")\n```\n<|tool_call_end|>\n",
    ),
    (
        "minimax_m3",
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Oslo]<]minimax[>[</city>'
        ']<]minimax[>[</invoke>\n]<]minimax[>[<invoke name="get_time">]<]minimax[>[ \n<city>Lima</city>]<]minimax[>['
        "</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        "kimi_k3",
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" '
        'type="string"<|sep|>Oslo<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="get_time" index="2"'
        '<|sep|><|open|>json type="object"<|sep|>{"city": "Lima"}<|close|>json<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|>",
    ),
    ("nemotron_v2", f'<TOOLCALL>[{{"name": "get_weather", "arguments": {ONE}}}, {{"name": "get_time", "arguments": '
     '{"city": "Lima"}}]</TOOLCALL>'),
    ("command_r7b", f'<|START_ACTION|>[\n  {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {ONE}}},\n'
     '    {"tool_call_id": "1", "tool_name": "get_time", "parameters": {"city": "Lima"}}\n]<|END_ACTION|>'),
    ("command_r", f'Action:\n```json\n[\n{{"tool_name": "get_weather", "parameters": {ONE}}},\n{{"tool_name": '
     '"get_time", "parameters": {"city": "Lima"}}\n]\n```'),
    ("gigachat3", f'function call<|role_sep|>\n{{"name": "get_weather", "arguments": {ONE}}}<|message_sep|>\n\n'
     'function call<|role_sep|>\n{"name": "get_time", "arguments": {"city": "Lima"}}<|message_sep|>'),
    ("gigachat3", f'<|function_call|>{{"name": "get_weather", "arguments": {ONE}}}<|message_sep|>'
     '<|function_call|>{"name": "get_time", "arguments": {"city": "Lima"}}<|message_sep|>'),
    ("solar_open", f"<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>get_weather<|tool_call:args|>{ONE}"
     "<|tool_call:end|><|tool_call:begin|>a2<|tool_call:name|>get_time<|tool_call:args|>"
     '{"city": "Lima"}<|tool_call:end|><|calls|>'),
    ("solar_open2", "<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Oslo<|tool_arg:end|>\n"
     "<|tool_call:end|><|tool_call:start|>get_time\n<|tool_arg:start|>city<|tool_arg:value|>Lima<|tool_arg:end|>\n"
     "<|tool_call:end|>"),
    ("longcat", f'<longcat_tool_call>\n{{"name": "get_weather", "arguments": {ONE}}}\n</longcat_tool_call>'
     "<longcat_tool_call>get_time\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Lima"
     "</longcat_arg_value>\n</longcat_tool_call>"),
    (
        "step3",
        "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\">\n"
        '<steptml:parameter name="city">Oslo</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n'
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_time"><steptml:parameter name="city">Lima'
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
    ),
    ("olmo3", "<function_calls>\nget_weather(city='Oslo')\nget_time(city=\"Lima\")\n</function_calls>"),
    ("jamba", f'<tool_calls>[{{"name": "get_weather", "arguments": {ONE}, "id": "a"}}, {{"name": "get_time", '
     '"arguments": {"city": "Lima"}}]</tool_calls>'),
    ("apertus", f'<|tools_prefix|>[{{"get_weather": {ONE}}}, {{"get_time": {{"city": "Lima"}}}}]<|tools_suffix|>'),
    (
        "hunyuan3",
        "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city"
        "</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n</tool_call:opensource>\n"
        "<tool_call:opensource>get_time<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
        "<arg_value:opensource>Lima</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
    ),
    ("minicpm5", '<function name="get_weather"><param name="city">Oslo</param></function>\n'
     '<function name="get_time"><param name="city"><![CDATA[Lima]]></param></function>'),
    ("atem", '<atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">Oslo'
     '</atem:parameter>\n</atem:invoke>\n<atem:invoke name="get_time">\n<atem:parameter name="city">Lima'
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"),
    ("gemma4", '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>}call:get_time{city:<|"|>Lima<|"|>}<tool_call|>'),
]  # fmt: skip

RICH = [
    (
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nSão\nPaulo\n</parameter>\n<parameter=days>\n3\n"
        '</parameter>\n<parameter=tags>\n["a", "b]"]\n</parameter>\n<parameter=deep>\n{"k": [1, null]}\n</parameter>\n'
        "<parameter=on>\nTrue\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "glm4_5",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>São\nPaulo</arg_value>\n<arg_key>days</arg_key>\n"
        '<arg_value>3</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["a", "b]"]</arg_value>\n<arg_key>deep</arg_key>'
        '\n<arg_value>{"k": [1, null]}</arg_value>\n<arg_key>on</arg_key>\n<arg_value>true</arg_value>\n</tool_call>',
    ),
    ("llama4", "[get_weather(city='São\\nPaulo', days=3, tags=['a', \"b]\"], deep={'k': [1, None]}, on=True)]"),
    ("gemma3", "```tool_code\nx = get_weather('São\\nPaulo', 3, ('a', 'b]',), {'k': [1, None]}, on=True)\n```"),
    (
        "gemma4",
        '<|tool_call>call:get_weather{city:<|"|>São\nPaulo<|"|>,days:3,tags:[<|"|>a<|"|>,<|"|>b]<|"|>],'
        "deep:{k:[1,null]},on:true}<tool_call|>",
    ),
    (
        "deepseek_v3_2",
        '<｜DSML｜function_calls><｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="city" string="true">'
        'São\nPaulo</｜DSML｜parameter><｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>'
        '<｜DSML｜parameter name="tags" string="false">["a", "b]"]</｜DSML｜parameter><｜DSML｜parameter name="deep" '
        'string="false">{"k": [1, null]}</｜DSML｜parameter><｜DSML｜parameter name="on" string="false">true'
        "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
    ),
    (
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">São\nPaulo</parameter>\n<parameter '
        'name="days">3</parameter>\n<parameter name="tags">["a", "b]"]</parameter>\n<parameter name="deep">{"k": [1, '
        'null]}</parameter>\n<parameter name="on">True</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    (
        "minicpm",
        "<|tool_call_start|>\n```python\nget_weather(city='São\\nPaulo', days=3, tags=['a', 'b]'], deep={'k': [1, "
        "None]}, on=True)\n```\n<|tool_call_end|>",
    ),
    (
        "minimax_m3",
        '~<tool_call>~<invoke name="get_weather">~<city>São\nPaulo~</city>~<days>3~</days>~<tags>~<item>a~</item>~'
        "<item>b]~</item>~</tags>~<deep>~<k>[1, null]~</k>~</deep>~<on>true~</on>~</invoke>~</tool_call>",
    ),
    (
        "kimi_k3",
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
        + "".join(
            f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
            for key, kind, value in (
                ("city", "string", "São\nPaulo"), ("days", "number", "3"), ("tags", "array", '["a", "b]"]'),
                ("deep", "object", '{"k": [1, null]}'), ("on", "boolean", "true"),
            )
        )
        + "<|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    ("olmo3", "<function_calls>\nget_weather(city='São\nPaulo', days=3, tags=['a', 'b]'], deep={'k': [1, null]}, "
     "on=true)\n</function_calls>"),
    ("minicpm5", '<function name="get_weather"><param name="city"><![CDATA[São\nPaulo]]></param><param name="days">3'
     "</param><param name=\"tags\">['a', 'b]']</param><param name=\"deep\">{'k': [1, None]}</param><param name=\"on\">"
     "True</param></function>"),
]  # fmt: skip


RICH = [(format, text.replace("~", "]<]minimax[>[")) for format, text in RICH]


def read(text: str, format: str | None, size: int = 10_000_000) -> tuple[str, list[tuple[str, Any]]]:
    """Return the shown text, and the calls."""
    reply: Any = TextToolCalls(SCHEMAS, format)
    if format in ("harmony", "functionary"):
        reply = HarmonyReply() if format == "harmony" else FunctionaryReply(SCHEMAS)
    shown = "".join(reply.add(text[at : at + size]) for at in range(0, len(text), size)) + reply.end()
    return shown, [(call.name, json.loads(call.arguments)) for call in reply.calls]


def test_parallel_calls_are_read_completely_and_in_pieces() -> None:
    failures: list[str] = []
    for format, text in DOCUMENTED:
        for is_named in [True, False]:
            for size in [1, 3, 1000]:
                with collected(failures, format, text, is_named, size):
                    assert read(text, format if is_named else None, size) == ("", [OSLO, LIMA])
    assert failures == []


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("format", "text"), RICH)
def test_arguments_have_the_types_of_the_parameters(format: str, text: str, size: int) -> None:
    assert read(text, format, size) == ("", [FULL])


def test_text_around_calls_is_shown() -> None:
    failures: list[str] = []
    for format, text in [row for row in DOCUMENTED if not row[1].startswith("[")]:
        for size in [1, 1000]:
            with collected(failures, format, text, size):
                shown, calls = read(f"Let me see.\n{text} Done.", format, size)
                assert calls == [OSLO, LIMA]
                assert shown.strip().startswith("Let me see.")
                assert shown.endswith("Done.")
    assert failures == []


def test_a_reply_that_was_cut_never_invents_a_call() -> None:
    failures: list[str] = []
    for format, text in DOCUMENTED + RICH:
        for cut in [0.2, 0.4, 0.6, 0.8]:
            with collected(failures, format, text, cut):
                half = text[: int(len(text) * cut)]
                shown, calls = read(half, format)
                assert all(call in ([OSLO, LIMA] if (format, text) in DOCUMENTED else [FULL]) for call in calls)
                assert shown == half or calls
    assert failures == []


DAMAGED: list[Any] = [
    ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call><function=></function></tool_call>"),
    ("glm4_5", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"),
    ("glm4_5", "<tool_call>get_weather<arg_key>city</arg_key>Oslo</tool_call>"),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{<｜tool▁call▁end｜>"),
    ("kimi_k2", "<|tool_call_begin|>get_weather<|tool_call_argument_begin|>{}<|tool_call_end|>"),
    ("kimi_k2", "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>[1]<|tool_call_end|>"),
    ("llama4", "[get_weather(city='Oslo'), 5]"),
    ("llama4", "[get_weather(city=open('x'))]"),
    ("llama4", "[get_weather(city='Oslo') for x in y]"),
    ("llama4", "[unknown(city='Oslo')]"),
    ("llama4", "<|python_start|>import os\nos.remove('x')<|python_end|>"),
    ("gemma3", "```tool_code\nimport os\n```"),
    ("gemma3", "```python\nget_weather(city='Oslo')\n```"),
    ("gemma4", '<|tool_call>call:get_weather{city:<|"|>Oslo}<tool_call|>'),
    ("functiongemma", "<start_function_call>get_weather{}<end_function_call>"),
    ("phi4", 'functools["partial"] is not a call'),
    ("deepseek_v3_2", '<｜DSML｜function_calls><｜DSML｜invoke name="get_weather">Oslo</｜DSML｜invoke>'),
    ("deepseek_v3_2", '<｜DSML｜invoke name="get_weather">[1]</｜DSML｜invoke>'),
    ("deepseek_v3_2", '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="city">Oslo</｜DSML｜invoke>'),
    ("minimax_m2", '<minimax:tool_call><invoke name="get_weather"><parameter name="city">Oslo</invoke>'),
    ("minimax_m2", '<invoke name="get_weather"></invoke>'),
    ("minicpm", "<|tool_call_start|>\n```python\nimport os\n```<|tool_call_end|>"),
    ("minicpm", "<|tool_call_start|>get_weather(city='Oslo')<|tool_call_end|>"),
    ("hermes", "functools[" + json.dumps({"name": "get_weather", "arguments": {}}) + "]"),  # of another format
    ("mistral", "<tool_call>" + json.dumps({"name": "get_weather", "arguments": {}}) + "</tool_call>"),
]


def test_a_damaged_call_and_a_call_of_another_format_stay_text() -> None:
    failures: list[str] = []
    for format, text in DAMAGED:
        for size in [1, 1000]:
            with collected(failures, format, text, size):
                assert read(text, format, size) == (text, [])
    assert failures == []


def test_a_call_before_a_damaged_call_is_still_a_call() -> None:
    good, bad = DOCUMENTED[2][1].split("\n<｜tool▁call▁begin｜>")[0], "<｜tool▁call▁begin｜>oh no"
    shown, calls = read(good + bad, "deepseek")
    assert calls == [OSLO]
    assert bad in shown


def test_the_id_of_a_call_of_the_model_is_preserved() -> None:
    reply = TextToolCalls(SCHEMAS, "kimi_k2")
    reply.add(DOCUMENTED[4][1])
    reply.end()
    assert [call.id for call in reply.calls] == ["functions.get_weather:0", "functions.get_time:1"]


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("007", {"type": ["string", "integer"]}, "007"),
        ("7", {"type": ["string", "integer"]}, 7),
        ("C", {"$ref": "#/$defs/Unit"}, "C"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("1", {"enum": [1, 2]}, 1),
        ('["a"]', {"type": "array"}, ["a"]),
        ("['a', None]", {"type": "array"}, ["a", None]),
        ("not json", {"type": "array"}, "not json"),
        ('{"a": 1}', {}, {"a": 1}),
        ("plain", {}, "plain"),
        (" 1.50 ", {"type": "number"}, 1.5),
        ("x", {"$ref": "#/nowhere"}, "x"),
        ("[" * 5000, {"type": "array"}, "[" * 5000),
        ("9" * 6000, {"type": "integer"}, "9" * 6000),
        ('"quoted"', {"type": "object"}, "quoted"),
    ],
)
def test_a_text_is_converted_to_a_value_that_the_schema_of_its_parameter_allows(
    text: str, schema: Any, value: object
) -> None:
    assert typed(text, schema, PARAMETERS) == value


# Thoughts

THOUGHT_OF = {
    "deepseek_v3_2": "<think>{}</think>",
    "minicpm": "<|thought_start|>\n{}\n<|thought_end|>\n",
    "seed_oss": "<seed:think>{}</seed:think>",
    "llama4": "[THINK]{}[/THINK]",
}


def test_a_call_inside_of_a_thought_is_not_executed() -> None:
    failures: list[str] = []
    for format, text in DOCUMENTED:
        for is_named in [True, False]:
            for size in [1, 3, 1000]:
                with collected(failures, format, text, is_named, size):
                    thought = THOUGHT_OF.get(format, "<think>\n{}\n</think>\n\n").format(f"I could write {text} here.")
                    named = format if is_named else None
                    assert read(f"{thought}It rains.", named, size) == (f"{thought}It rains.", [])
                    shown, calls = read(f"{thought}{text}", named, size)
                    assert (shown.rstrip(), calls) == (thought.rstrip(), [OSLO, LIMA])
                    opening = "<think>" if "<think>" in thought else thought[: thought.index("I could")].strip()
                    unopened = thought.removeprefix(opening)  # the prompt ended in the thought
                    assert read(f"{unopened}It rains.", named, size) == (f"{unopened}It rains.", [])
                    shown, calls = read(f"{unopened}{text}", named, size)
                    assert (shown.rstrip(), calls) == (unopened.rstrip(), [OSLO, LIMA])
                    unclosed = f"{opening}Now {text}"
                    assert read(unclosed, named, size) == (unclosed, [])
    assert failures == []


@pytest.mark.parametrize("size", [1, 1000])
def test_thoughts_between_calls_and_tags_inside_of_arguments(size: int) -> None:
    first, second = DOCUMENTED[0][1].split("\n<tool_call>")
    between = f"<think>{first}</think>"
    shown, calls = read(f"{first}{between}<tool_call>{second}", "qwen3_coder", size)
    assert (shown, calls) == (between, [OSLO, LIMA])
    text = first.replace("Oslo", "<think> and </think>")
    assert read(text, "qwen3_coder", size) == ("", [("get_weather", {"city": "<think> and </think>"})])


# Functionary

FUNCTIONARY = [
    (f"get_weather\n{ONE}", "", [OSLO]),
    (f'get_weather\n{ONE}\n>>>get_time\n{{"city": "Lima"}}', "", [OSLO, LIMA]),
    (f"all\nLet me see.>>>get_weather\n{ONE}", "Let me see.", [OSLO]),
    ("all\nIt rains.", "It rains.", []),
    (f">>>get_weather\n{ONE}", "", [OSLO]),  # if the prompt does not end in the mark
    ("all\n>>> print(1)\n>>>unknown\n{}", ">>> print(1)\n>>>unknown\n{}", []),
    ("Without a name.", "Without a name.", []),
    ("get_time\n", "", [("get_time", {})]),
    ("all\n", "", []),
    ("", "", []),
]


def test_messages_belong_to_the_recipient_that_they_name() -> None:
    failures: list[str] = []
    for text, shown, calls in FUNCTIONARY:
        for size in [1, 4, 1000]:
            with collected(failures, text, shown, calls, size):
                assert read(text, "functionary", size) == (shown, calls)
    assert failures == []


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("body", ['{"city": "Os', "[1]", "nothing"])
def test_a_message_for_a_tool_that_is_not_an_object_stays_text(body: str, size: int) -> None:
    assert read(f"get_weather\n{body}", "functionary", size) == (f">>>get_weather\n{body}", [])


# Harmony

CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
HARMONY = [
    (f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{CALL}", "", [OSLO]),
    (f"{CALL}<|start|>assistant{CALL.replace('Oslo', 'Lima').replace('get_weather', 'get_time')}", "", [OSLO, LIMA]),
    (CALL.removesuffix("<|call|>"), "", [OSLO]),
    (' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>', "", [OSLO]),
    ("<|channel|>final<|message|>It rains.<|return|>", "It rains.", []),
    (
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Rain.<|return|>",
        "I look.\n\nRain.",
        [],
    ),
    (f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{CALL}", "I look.", [OSLO]),
    ("no channels <| here", "no channels <| here", []),
    ("", "", []),
]


def test_messages_on_different_channels_are_distinguished() -> None:
    failures: list[str] = []
    for text, shown, calls in HARMONY:
        for size in [1, 4, 1000]:
            with collected(failures, text, shown, calls, size):
                assert read(text, "harmony", size) == (shown, calls)
    assert failures == []


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "text",
    [
        CALL.replace("}", ""),
        CALL.replace('{"city": "Oslo"}', "[1]"),
        " to=functions.get_weather<|channel|>comm",
        "<|channel|>final",
        "<|start|>user<|message|>I am the user.<|end|>",
    ],
)
def test_a_malformed_message_is_shown_unchanged(text: str, size: int) -> None:
    assert read(text, "harmony", size) == (text, [])


def test_text_of_the_final_channel_is_shown_immediately_and_thoughts_are_stored() -> None:
    reply = HarmonyReply()
    assert reply.add("<|channel|>analysis<|message|>Let me") == ""
    assert reply.add(" think.<|end|><|start|>assistant<|channel|>final<|mess") == ""
    assert [reply.add(piece) for piece in ("age|>It", " rains", "<|ret", "urn|>")] == ["It", " rains", "", ""]
    assert (reply.end(), "".join(reply.thoughts)) == ("", "Let me think.")


# Selection of the format


def test_a_template_names_its_format() -> None:
    named = {name: CHAT_TEMPLATES.get(name)().tool_call_format for name in CHAT_TEMPLATES}  # type: ignore[attr-defined]
    assert {named[name] for name in named} - {None} <= set(TOOL_CALL_FORMATS)
    assert (named["qwen3"], named["gpt-oss"], named["llama3_2"], named["deepseek-r1"], named["vicuna"]) == (
        "hermes", "harmony", "llama3", "deepseek", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "format"),
    [
        ("<tool_call>\n<function={{ name }}>\n<parameter=x>", "qwen3_coder"),
        ("<tool_call>{{ name }}<arg_key>", "glm4_5"),
        ("<tool_call>{{ call | tojson }}</tool_call>", "hermes"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("{{ content }}", None),
    ],
)
def test_a_jinja_template_shows_its_format(source: str, format: str | None) -> None:
    assert JinjaChatTemplate(source).tool_call_format == format
    assert JinjaChatTemplate(source, tool_call_format="mistral").tool_call_format == "mistral"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate("x", tool_call_format="hermess")
    with pytest.raises(ChatTemplateError):
        checked_format(5)


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason="the shared cases are not here")
@pytest.mark.parametrize(
    "name",
    [
        "llamacpp__Qwen3-Coder", "llamacpp__GLM-4.6", "llamacpp__GLM-4.7-Flash", "vllm__tool_deepseekv3",
        "llamacpp__google-gemma-4-31B-it", "llamacpp__ByteDance-Seed-OSS", "vllm__tool_hermes",
        "llamacpp__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "llamacpp__Mistral-Small-3.2-24B-Instruct-2506",
    ],
)  # fmt: skip
def test_a_call_that_the_template_of_a_model_writes_is_read_again(name: str) -> None:
    source = (CONFORMANCE / "chat_templates" / f"{name}.jinja").read_text("utf-8")
    template = JinjaChatTemplate(source, bos_token="<s>", eos_token="</s>", now=datetime(2026, 1, 1))
    tools = [ToolSpec(name, "It.", schema) for name, schema in SCHEMAS.items()]
    calls = [ToolCall(f"{index:09}", name, json.dumps(given)) for index, (name, given) in enumerate((FULL, LIMA))]
    text = template.render([Message("user", "hi"), Message("assistant", tool_calls=calls)], tools, False)
    first = min(at for form in forms_of(template.tool_call_format) if (at := text.rfind(form.opening)) >= 0)
    opening = text.rfind("hi", 0, first)
    assert read(text[opening:], template.tool_call_format)[1] == [FULL, LIMA]


# Hostile text

OPENINGS = [form.opening for form in forms_of(None)]
PIECES = st.sampled_from(
    OPENINGS
    + [form.closing for form in forms_of(None)]
    + [
        *("get_weather", "<function=get_weather>", "<parameter=city>", "</parameter>", "</function>", "<arg_key>city"),
        *(
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            "call:get_weather{",
            "city:",
            "<escape>",
            '<|"|>',
            "}",
            "{",
            "[",
        ),
        *("get_weather(city=", "'", '"', "\\", ")", "]", ",", "functions.get_weather:0", "<｜tool▁sep｜>", "```json\n"),
        *("<｜tool▁call▁end｜>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", ONE, " ", "\n", "x", "\ud800"),
        *("<|channel|>", "<|message|>", "<|start|>", "assistant", " to=functions.get_weather", "<|end|>", "final"),
    ]
)


@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.integers(1, 20),
    st.sampled_from([None, *TOOL_CALL_FORMATS]),
)
@settings(max_examples=tries(150, 300))
def test_the_pieces_of_a_reply_make_no_difference(text: str, size: int, format: str | None) -> None:
    assert read(text, format, size) == read(text, format)


HOSTILE = [
    *(opening for opening in OPENINGS),
    "<tool_call><function=a><parameter=x>",
    "<function=a><parameter=x>1</parameter>",
    "<tool_call>a<arg_key>b</arg_key><arg_value>",
    "<｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
    "<|python_start|>[f(a='",
    "<|python_start|>[f(a=[",
    "```tool_code\nf(1,",
    '<|tool_call>call:f{a:<|"|>',
    "<|tool_call>call:f{a:{",
    "<start_function_call>call:f{a:<escape>x",
    "<|channel|>commentary to=functions.f<|message|>{",
    "[f(a=1),",
    '<tool_call>[{"a": "',
    "<|start|>",
]
TAILS = ["", " <", "</parameter>" + "<parameter=y>1</parameter>" * 1000 + "!"]


def seconds_of_hostile_text(unit: str, tail: str, size: int) -> float:
    text = unit * (size // len(unit)) + tail * max(1, size // 12_500)
    start = time.process_time()
    for format in (None, "harmony"):
        read(text, format, 100_000)
    return time.process_time() - start


def test_hostile_text_takes_time_that_grows_with_its_length() -> None:
    failures: list[str] = []
    for unit, tail in thinned(pairs(HOSTILE, TAILS), 4):
        with collected(failures, unit, tail):
            small, large = (seconds_of_hostile_text(unit, tail, size) for size in (2_500, 20_000))
            assert large < max(small, 0.01) * 40  # eight times as much; quadratic would be sixty-four times
    assert failures == []
