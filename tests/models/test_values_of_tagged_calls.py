"""Values between tags: exact line breaks, tags inside of values, arguments without an end, detection of formats."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.prompts.chat_templates import JinjaChatTemplate
from tests.cases import collected

SCHEMAS: dict[str, Any] = {
    "edit": {"type": "object", "properties": {"old": {"type": "string"}, "new": {"type": "string"}, "count": {}}},
}
M3 = "]<]minimax[>["
WRITERS: dict[str, tuple[str, str, str]] = {
    "qwen3_coder": (
        "<tool_call>\n<function=edit>\n{}</function>\n</tool_call>", "<parameter={}>\n", "\n</parameter>\n"
    ),
    "seed_oss": (
        "<seed:tool_call>\n<function=edit>\n{}</function>\n</seed:tool_call>", "<parameter={}>", "</parameter>\n"
    ),
    "glm4_5": ("<tool_call>edit\n{}</tool_call>", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n"),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="edit">\n{}</invoke>\n</minimax:tool_call>',
        '<parameter name="{}">', "</parameter>\n",
    ),
    "deepseek_v3_2": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="edit">\n{}</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        '<｜DSML｜parameter name="{}" string="true">', "</｜DSML｜parameter>\n",
    ),
    "step3": (
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="edit">\n{}</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        '<steptml:parameter name="{}">', "</steptml:parameter>\n",
    ),
    "kimi_k3": (
        '<|open|>tools<|sep|><|open|>call tool="edit" index="1"<|sep|>{}<|close|>call<|sep|><|close|>tools<|sep|>',
        '<|open|>argument key="{}" type="string"<|sep|>', "<|close|>argument<|sep|>",
    ),
    "hunyuan3": (
        "<tool_calls:opensource>\n<tool_call:opensource>edit<tool_sep:opensource>\n{}</tool_call:opensource>\n"
        "</tool_calls:opensource>",
        "<arg_key:opensource>{}</arg_key:opensource>\n<arg_value:opensource>", "</arg_value:opensource>\n",
    ),
    "longcat": (
        "<longcat_tool_call>edit\n{}</longcat_tool_call>",
        "<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>", "</longcat_arg_value>\n",
    ),
    "solar_open2": (
        "<|tool_call:start|>edit\n{}<|tool_call:end|>",
        "<|tool_arg:start|>{}<|tool_arg:value|>", "<|tool_arg:end|>\n",
    ),
    "atem": (
        '<atem:function_calls>\n<atem:invoke name="edit">\n{}</atem:invoke>\n</atem:function_calls>',
        '<atem:parameter name="{}">', "</atem:parameter>\n",
    ),
    "minicpm5": ('<function name="edit">{}</function>', '<param name="{}">', "</param>"),
    "minimax_m3": (f'{M3}<tool_call>{M3}<invoke name="edit">{{}}{M3}</invoke>{M3}</tool_call>', f"{M3}<{{0}}>", ""),
}  # fmt: skip
"""Texts around the arguments, before a value and after it, as the templates of the formats write them."""


TAGGED = "<function=edit><parameter=new>quoted</parameter></function>"


def written(format: str, arguments: dict[str, str], unclosed: str = "") -> str:
    """Return a call as a model writes it; the argument `unclosed` has no closing tag."""
    around, opening, closing = WRITERS[format]
    texts = []
    for key, value in arguments.items():
        end = f"{M3}</{key}>" if format == "minimax_m3" else closing
        texts.append(opening.format(key) + value + ("\n" if key == unclosed else end))
    return around.format("".join(texts))


def read(text: str, format: str | None, size: int = 1_000_000) -> tuple[str, list[Any]]:
    reply = TextToolCalls(SCHEMAS, format)
    shown = "".join(reply.add(text[at : at + size]) for at in range(0, len(text), size)) + reply.end()
    return shown, [json.loads(call.arguments) for call in reply.calls]


def values_with_tags(format: str) -> list[str]:
    """Return values that contain the tags of a format; the rest of the call shows that they are text."""
    around, opening, closing = WRITERS[format]
    end = closing.strip() or f"{M3}</old>"
    # The end of a call of MiniMax M3 in a value ends the call.
    after = "" if format == "minimax_m3" else around.partition("{}")[2]
    nested = written(format, {"old": "1"})
    return [
        f"a {end} b",
        f"{end} at the start",
        f"a {after} b",
        f"see {opening.format('it').strip()} there {end} b",
        nested,
        f"see {nested} there",
        f"\n{nested}\n",
        f"{nested} or {nested}",
        written(format, {"old": nested, "new": "2"}),
    ]


def test_values_are_exact() -> None:
    failures: list[str] = []
    plain = [
        "x",
        "",
        "\n",
        "\n  if x:\n    y\n",
        "  x  ",
        "\n\nx\n\n",
        "\r\nx\r\n",
        "\tx",
        "7",
        "null",
        '"q"',
        "<b>x</b>",
    ]
    for format in WRITERS:
        for value in [*plain, *values_with_tags(format)]:
            for size in (1, 1_000_000):
                for given in ({"old": value}, {"old": value, "new": "z"}, {"new": "z", "old": value}):
                    with collected(failures, format, value, given):
                        assert read(written(format, given), format, size) == ("", [given])
    assert failures == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a <old> ", ""),
        ("<old>", ""),
        ("", "</old>"),
        ("a ", "</old> b"),
        ("</new>", "</new>"),
        ("<tool_call>", ""),
        ('<tool_call><invoke name="edit"><new>', ""),
        ("<new><item>", "</item>"),
    ],
)
def test_a_call_quoted_in_a_call_of_minimax_m3_is_never_executed(before: str, after: str) -> None:
    quoted = written("minimax_m3", {"new": "quoted"})
    value = before.replace("<", f"{M3}<") + quoted + after.replace("<", f"{M3}<")
    for arguments in ({"old": value}, {"new": "z", "old": value}, {"old": value, "new": "z"}, {"count": value}):
        for format in ("minimax_m3", None):
            calls = read(written("minimax_m3", arguments), format)[1]
            assert {"new": "quoted"} not in calls
            # A later call is executed.
            assert read(written("minimax_m3", arguments) + quoted, format)[1][len(calls) :] == [{"new": "quoted"}]


def test_a_call_that_is_cut_after_a_quoted_call_executes_nothing() -> None:
    failures: list[str] = []
    for format in WRITERS:
        around, opening, closing = WRITERS[format]
        quoted = written(format, {"new": "quoted"})
        begun = around.partition("{}")[0] + opening.format("old")
        end = closing.strip() or f"{M3}</old>"
        for before in ("", "I edit. ", written(format, {"old": "1"}), f"<think>{quoted}</think>"):
            for value in (f"x {quoted} and m", quoted, f"\n{quoted}{quoted}\n", f"a {end} b {quoted} m"):
                for used, size, at_limit in product((format, None), (7, 1_000_000), (True, False)):
                    reply = TextToolCalls(SCHEMAS, used)
                    text = before + begun + value
                    shown = "".join([reply.add(text[at : at + size]) for at in range(0, len(text), size)])
                    reply.end(at_limit=at_limit)
                    with collected(failures, format, used, size, at_limit, text, shown):
                        assert "quoted" not in "".join([call.arguments for call in reply.calls])
                        assert reply.is_cut or reply.calls or reply.unreadable
                        assert reply.is_cut == at_limit
    assert failures == []


@pytest.mark.parametrize(
    ("format", "begun", "quoted", "is_cut"),
    [
        ("hermes", '<tool_call>{"name": "edit", "arguments": {"old": "x ', "<tool_call>{}</tool_call>", True),
        ("hermes", '<tool_call>{"name": "edit", "arguments": {"old": "</tool_call>', "<tool_call>{}</tool_call>", True),
        ("mistral", '[TOOL_CALLS]edit[ARGS]{"old": "x ', "[TOOL_CALLS]{}", True),
        ("llama4", '<|python_start|>[edit(old="x ', "<|python_start|>[edit(new='quoted')]<|python_end|>", True),
        (None, '{"name": "edit", "arguments": {"old": "x ', "<tool_call>{}</tool_call>", True),
        (None, '{"arguments": {"old": "x ', TAGGED, False),
        (None, '{"answer": "', TAGGED, False),
    ],
)
def test_a_cut_call_without_tags_executes_no_quoted_call(
    format: str | None, begun: str, quoted: str, is_cut: bool
) -> None:
    call = {"name": "edit", "arguments": {"new": "quoted"}}
    for text in (json.dumps(json.dumps(call))[1:-1], str(call), json.dumps(call)):
        for at_limit in (True, False):
            reply = TextToolCalls(SCHEMAS, format)
            reply.add(begun + quoted.replace("{}", text) + " and m")
            reply.end(at_limit=at_limit)
            # A string without escapes ends at the first quote, so the rest is not recognised as its value.
            if text != json.dumps(call) or "</tool_call><" not in begun + quoted:
                assert reply.calls == []
            if text != json.dumps(call):
                assert reply.is_cut == (is_cut and at_limit)


def test_a_call_that_json_quotes_is_text() -> None:
    answer = json.dumps({"answer": f"Write {TAGGED}."})
    assert read(answer, None) == (answer, [])
    later = TAGGED.replace("quoted", "1")
    assert read(answer + later, None) == (answer, [{"new": "1"}])


def test_an_argument_without_a_closing_tag_ends_at_the_next_argument() -> None:
    failures: list[str] = []
    for format in WRITERS:
        for given, unclosed in (
            ({"old": "a", "new": "b"}, "old"),
            ({"new": "a", "old": "b", "count": "c"}, "old"),
            ({"new": "a\nb", "count": "c", "old": "d"}, "new"),
        ):
            for size in (1, 1_000_000):
                with collected(failures, format, given, unclosed):
                    assert read(written(format, given, unclosed), format, size) == ("", [given])
        # Without a next argument the call is unreadable.
        text = written(format, {"old": "a", "new": "b"}, "new")
        with collected(failures, format, text):
            assert read(text, format) == (text, [])
    assert failures == []


JSON = "{{ '{\"name\": \"' }}{{ f.name }}{{ '\", \"arguments\": ' }}{{ f.arguments | tojson }}{{ '}' }}"
HERMES = f"<tool_call>\n{JSON}\n</tool_call>"
PARAMETERS = "{% for k, v in f.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}"
TEMPLATE = (
    "HINT{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% set f = c.function %}CALL{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nOPEN{% endif %}"
)


@pytest.mark.parametrize(
    ("hint", "call", "opened", "format"),
    [
        ("<tool_call> <parameter=x>", HERMES, "", "hermes"),
        ("<tool_call> <arg_key>", HERMES, "<think>\n", "hermes"),
        (
            "<tool_call>",
            f"<tool_call>\n<function={{{{ f.name }}}}>{PARAMETERS}</function>\n</tool_call>",
            "",
            "qwen3_coder",
        ),
        ("<tool_call> <parameter=x> <tool_calls>", HERMES.replace("tool_call", "tool_calls"), "", "jamba"),
        ("<|tool_call|>", HERMES, "", "hermes"),
        (
            "<tool_call>",
            "<tool_call>{{ f.name }}{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}"
            "</arg_value>{% endfor %}</tool_call>",
            "",
            "glm4_5",
        ),
        ("[TOOL_CALLS]", "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}", "", "mistral"),
        ("no sign", JSON, "", None),
        ("<tool_call>", "<new_call>{{ f.name }}|{{ f.arguments | tojson }}</new_call>", "", "hermes"),
    ],
)
def test_the_call_that_a_template_renders_determines_its_format(
    hint: str, call: str, opened: str, format: str | None
) -> None:
    template = JinjaChatTemplate(TEMPLATE.replace("HINT", hint).replace("CALL", call).replace("OPEN", opened))
    is_readable = "<new_call>" not in call
    assert (template.tool_call_format, template.reads_its_calls) == (format, is_readable)
    codes = [finding.code for finding in template.diagnose()]
    assert ("unreadable_tool_calls" not in codes) == is_readable


@pytest.mark.parametrize(("format", "closing"), [("qwen3_coder", "</tool_call>"), ("seed_oss", "</seed:tool_call>")])
def test_the_closing_tag_of_a_call_without_its_opening_tag_is_not_text(format: str, closing: str) -> None:
    call = f"<function=edit>\n<parameter=old>a</parameter>\n</function>\n{closing}"
    for size in (1, 400):
        reader = TextToolCalls(SCHEMAS, format)
        text = f"I edit.\n{call}\n{call}"
        visible = "".join([reader.add(text[at : at + size]) for at in range(0, len(text), size)]) + reader.end()
        assert ([json.loads(one.arguments) for one in reader.calls], visible) == ([{"old": "a"}] * 2, "I edit.\n")
