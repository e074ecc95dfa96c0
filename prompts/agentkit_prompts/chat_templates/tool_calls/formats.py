"""Table of the tool call formats of models; a new format needs rows, and sometimes a reader.

`tool_call_format` of a chat template selects a format; without it, every format is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, cast

from agentkit_prompts.chat_templates.tool_calls.gemma_calls import gemma_calls
from agentkit_prompts.chat_templates.tool_calls.json_calls import (
    deepseek_call,
    json_calls,
    keyed_calls,
    kimi_call,
    named_call,
    only_json,
    solar_json_call,
)
from agentkit_prompts.chat_templates.tool_calls.minimax_calls import MARKER, minimax_m3_calls
from agentkit_prompts.chat_templates.tool_calls.python_calls import fenced_python, only_python, python_calls
from agentkit_prompts.chat_templates.tool_calls.reply_text import Reader, calls_between
from agentkit_prompts.chat_templates.tool_calls.tagged_calls import (
    exact,
    function_tag,
    invoke_calls,
    kimi_k3_calls,
    pair_call,
    param_tags,
    parameter_tags,
    solar_call,
    unbroken,
)
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.names import nearest

HARMONY = "harmony"
"""Format of gpt-oss: the whole reply consists of messages on channels."""
FUNCTIONARY = "functionary"
"""Format of functionary 3.0 and 3.2: the whole reply consists of messages, each after the name of its recipient."""

_DEEPSEEK = ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
_DSML = ("<｜DSML｜invoke name=", "</｜DSML｜invoke>")
_GLM = ("<tool_call>", "</tool_call>")
_HUNYUAN = ("<tool_call:opensource>", "</tool_call:opensource>")
_LONGCAT = ("<longcat_tool_call>", "</longcat_tool_call>")
_KIMI = ("<|tool_call_begin|>", "<|tool_call_end|>")
_SOLAR = ("<|tool_call:begin|>", "<|tool_call:end|>")
_STEP = ("<｜tool_call_begin｜>", "<｜tool_call_end｜>")
_ATEM = "<atem:function_calls>"

_deepseek_calls = calls_between(*_DEEPSEEK, deepseek_call)
_glm_call = pair_call(_GLM[0], "arg_key", "arg_value", _GLM[1])
_hunyuan_call = pair_call(
    _HUNYUAN[0], "arg_key:opensource", "arg_value:opensource", _HUNYUAN[1], separator="<tool_sep:opensource>"
)
_kimi_calls = calls_between(*_KIMI, kimi_call)
_longcat_call = pair_call(_LONGCAT[0], "longcat_arg_key", "longcat_arg_value", _LONGCAT[1])
_solar_calls = calls_between(*_SOLAR, solar_json_call)
_step_call = invoke_calls("steptml:")


class Form(NamedTuple):
    """Syntax of calls: the texts around them, and their reader. A format can have several forms."""

    format: str
    opening: str
    closing: str
    """Text after calls. It can be missing at the end of the reply, because it is a stop word of some templates."""
    read: Reader
    call_chars: int = 0
    """Number of characters at the end of `opening` that belong to the first call."""
    may_stay_open: bool = False
    """True if `closing` can be missing anywhere, because a model can leave out the texts around calls."""
    orphan: str = ""
    """Text after `closing` that a model writes also if it left out the opening text before it."""


_FORMS = (
    Form("hermes", "<tool_call>", "</tool_call>", json_calls),
    Form("granite", "<|tool_call|>", "<|/tool_call|>", json_calls),
    Form("llama3", "<|python_tag|>", "<|eom_id|>", json_calls),
    Form("llama3", "<function=", "</function>", named_call(">")),
    Form("internlm2", "<|action_start|><|plugin|>", "<|action_end|>", json_calls),
    Form("mistral", "[TOOL_CALLS]", "", json_calls),
    Form("mistral", "[TOOL_CALLS]", "", named_call("[ARGS]")),
    Form("qwen3_coder", "<tool_call>", "</tool_call>", function_tag(unbroken)),
    Form("qwen3_coder", "<function=", "</function>", parameter_tags(unbroken), orphan="</tool_call>"),
    Form("seed_oss", "<seed:tool_call>", "</seed:tool_call>", function_tag(exact)),
    Form("seed_oss", "<function=", "</function>", parameter_tags(exact), orphan="</seed:tool_call>"),
    Form("glm4_5", *_GLM, _glm_call),
    Form("deepseek", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", _deepseek_calls),
    Form("deepseek", _DEEPSEEK[0], "<｜tool▁calls▁end｜>", _deepseek_calls, len(_DEEPSEEK[0]), True),
    Form("deepseek_v3_2", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", invoke_calls("｜DSML｜")),
    Form("deepseek_v3_2", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", invoke_calls("｜DSML｜")),
    Form("deepseek_v3_2", *_DSML, invoke_calls("｜DSML｜"), len(_DSML[0]), True),
    Form("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>", invoke_calls("")),
    Form("kimi_k2", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _kimi_calls),
    Form("kimi_k2", _KIMI[0], "<|tool_calls_section_end|>", _kimi_calls, len(_KIMI[0]), True),
    Form("kimi_k3", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>", kimi_k3_calls),
    Form("minimax_m3", f"{MARKER}<tool_call>", f"{MARKER}</tool_call>", minimax_m3_calls),
    Form("nemotron_v2", "<TOOLCALL>", "</TOOLCALL>", json_calls),
    Form("command_r7b", "<|START_ACTION|>", "<|END_ACTION|>", json_calls),
    Form("command_r", "Action:\n```json", "```", json_calls),
    Form("command_r", "Action: ```json", "```", json_calls),
    Form("gigachat3", "<|message_sep|>\n\nfunction call<|role_sep|>", "<|message_sep|>", json_calls),
    Form("gigachat3", "function call<|role_sep|>", "<|message_sep|>", json_calls),
    Form("gigachat3", "<|function_call|>", "<|message_sep|>", json_calls),
    Form("solar_open", "<|tool_calls|>", "<|calls|>", _solar_calls),
    Form("solar_open", _SOLAR[0], "<|calls|>", _solar_calls, len(_SOLAR[0]), True),
    Form("solar_open2", "<|tool_call:start|>", "<|tool_call:end|>", solar_call),
    Form("longcat", *_LONGCAT, json_calls),
    Form("longcat", *_LONGCAT, _longcat_call),
    Form(
        "step3",
        "<｜tool_calls_begin｜>",
        "<｜tool_calls_end｜>",
        calls_between(f"{_STEP[0]}function<｜tool_sep｜>", _STEP[1], _step_call),
    ),
    Form("step3", "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", calls_between(*_STEP, _step_call)),
    Form("olmo3", "<function_calls>", "</function_calls>", python_calls),
    Form("apertus", "<|tools_prefix|>", "<|tools_suffix|>", keyed_calls),
    Form("hunyuan3", "<tool_calls:opensource>", "</tool_calls:opensource>", calls_between(*_HUNYUAN, _hunyuan_call)),
    Form("hunyuan3", *_HUNYUAN, _hunyuan_call),
    Form("minicpm5", "<function name=", "</function>", param_tags),
    Form("atem", _ATEM, "</atem:function_calls>", invoke_calls("atem:")),
    Form("llama4", "<|python_start|>", "<|python_end|>", python_calls),
    Form("lfm2", "<|tool_call_start|>", "<|tool_call_end|>", python_calls),
    Form("minicpm", "<|tool_call_start|>", "<|tool_call_end|>", fenced_python),
    Form("jamba", "<tool_calls>", "</tool_calls>", json_calls),
    Form("phi4", "functools[", "", json_calls, 1),
    Form("phi4", "<|tool_call|>", "<|/tool_call|>", json_calls),
    Form("gemma3", "```tool_code", "```", python_calls),
    Form("functiongemma", "<start_function_call>", "<end_function_call>", gemma_calls("<escape>")),
    Form("gemma4", "<|tool_call>", "<tool_call|>", gemma_calls('<|"|>')),
)
"""Forms that are recognised anywhere in a reply; for equal openings, the first form that succeeds."""

TAGGED_FORMATS = frozenset(
    (
        *("atem", "deepseek_v3_2", "glm4_5", "hunyuan3", "kimi_k3", "minicpm5", "minimax_m2", "minimax_m3"),
        *("qwen3_coder", "seed_oss", "solar_open2", "step3"),
    )
)
"""Formats with arguments between tags; their chat templates fail for arguments that are not a JSON object."""

_BARE: dict[str, tuple[Reader, ...]] = {
    "llama3": (only_json, only_python),
    "llama4": (only_json, only_python),
    "gemma3": (only_json, only_python),
}
"""Readers of a reply that contains only calls of available tools; JSON in every other format."""

_SIGNS = (
    ("minimax_m3", r"\]<\]minimax\[>\["),
    ("minimax_m2", r"<minimax:tool_call>"),
    ("deepseek_v3_2", r"｜DSML｜"),
    (FUNCTIONARY, r">>>(?:all\b|\$\{recipient\})"),
    ("minicpm", r"<\|thought_start\|>|<\|tool_call_start\|>\s*+```"),
    ("atem", r"<atem:function_calls>"),
    ("seed_oss", r"<seed:tool_call>"),
    ("qwen3_coder", r"<parameter="),
    ("longcat", r"<longcat_tool_call>"),
    ("hunyuan3", r"<tool_calls?:opensource>"),
    ("glm4_5", r"<arg_key>"),
    ("kimi_k2", r"<\|tool_call_argument_begin\|>"),
    ("kimi_k3", r"<\|open\|>"),
    ("step3", r"steptml:"),
    ("deepseek", r"<｜tool▁call▁begin｜>"),
    ("gemma4", r"<\|tool_call>"),
    ("functiongemma", r"<start_function_call>"),
    (HARMONY, r"<\|channel\|>"),
    ("nemotron_v2", r"<TOOLCALL>"),
    ("command_r7b", r"<\|START_ACTION\|>"),
    ("command_r", r"Action:\s*+```json|Write \\?'Action:"),
    ("gigachat3", r"function call<\|role_sep\|>|<\|function_call\|>|<\|role_sep\|>"),
    ("solar_open", r"<\|tool_call:begin\|>"),
    ("solar_open2", r"<\|tool_call:start\|>"),
    ("olmo3", r"<function_calls>"),
    ("apertus", r"<\|tools_prefix\|>"),
    ("minicpm5", r"<function name="),
    ("phi4", r"functools\[|<\|/tool\|>"),
    ("granite", r"<\|tool_call\|>"),
    ("internlm2", r"<\|action_start\|>"),
    ("mistral", r"\[TOOL_CALLS\]"),
    ("llama4", r"<\|python_start\|>|<\|header_start\|>"),
    ("llama3", r"<\|python_tag\|>|<\|start_header_id\|>ipython"),
    ("gemma3", r"<start_of_turn>"),
    ("hermes", r"<tool_call>"),
    ("lfm2", r"<\|tool_call_start\|>"),
    ("jamba", r"<tool_calls>"),
)
"""Formats and patterns of texts in their chat templates, the most specific first."""

TOOL_CALL_FORMATS = (*dict.fromkeys(form.format for form in _FORMS), HARMONY, FUNCTIONARY)
"""Names of all formats."""


def checked_format(name: object) -> str | None:
    """Return the name of a format, or None.

    Raises:
        ChatTemplateError: The format is unknown.
    """
    problem = format_problem(name)
    if problem:
        raise ChatTemplateError(f"tool_call_format: {problem}", name=str(name))
    return cast("str | None", name)


def format_problem(name: object) -> str:
    """Return the problem of the name of a format; an empty text for a valid name and for None."""
    if name is None or (isinstance(name, str) and name in TOOL_CALL_FORMATS):
        return ""
    near = nearest(str(name), TOOL_CALL_FORMATS) or f": it is one of {', '.join(TOOL_CALL_FORMATS)}"
    return f"unknown format {name!r:.80}{near}"


def forms_of(name: str | None) -> tuple[Form, ...]:
    """Return the forms of a format; all forms for None."""
    return tuple([form for form in _FORMS if name is None or form.format == name])


def bare_readers(name: str | None) -> tuple[Reader, ...]:
    """Return the readers of a reply of this format that contains only calls."""
    if name is None:
        return (only_json, only_python)
    return _BARE.get(name, (only_json,))


def formats_in_texts(texts: Iterable[str]) -> list[str]:
    """Return the formats whose signs the texts of a chat template contain, the most specific first."""
    whole = "\0".join(texts)
    return [name for name, sign in _SIGNS if re.search(sign, whole)]
