"""Special tokens of models: from the files of a model, and of the registered templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts import Layers, PromptContext, compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, JinjaChatTemplate
from tests.cases import for_cases

SOURCE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def token(content: str, special: bool = True) -> dict[str, Any]:
    return {"content": content, "lstrip": False, "special": special}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": {"additional_special_tokens": ["<|x|>"]}}, "<|x|>"),
        ({"tokenizer_config.json": {"additional_special_tokens": [token("[X]")]}}, "[X]"),
        ({"tokenizer_config.json": {"extra_special_tokens": {"image_token": "<image>"}}}, "<image>"),
        ({"tokenizer_config.json": {"extra_special_tokens": ["<image>"]}}, "<image>"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"7": token("<|x|>")}}}, "<|x|>"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"7": token("<tool_call>", False)}}}, "<tool_call>"),
        ({"tokenizer_config.json": {}, "special_tokens_map.json": {"eos_token": token("<eos>")}}, "<eos>"),
        ({"tokenizer_config.json": {}, "added_tokens.json": {"<|x|>": 7}}, "<|x|>"),
        ({"tokenizer_config.json": {}, "tokenizer.json": {"added_tokens": [token("<|x|>")]}}, "<|x|>"),
        ({"tokenizer.json": {"added_tokens": [token("<|x|>")]}}, "<|x|>"),
    ],
    ids=str,
)
def test_special_tokens_are_read_from_the_files_of_a_model(
    tmp_path: Path, files: dict[str, Any], expected: str
) -> None:
    (tmp_path / "chat_template.jinja").write_text(SOURCE, "utf-8")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), "utf-8")
    template = JinjaChatTemplate.from_file(tmp_path)
    assert expected in template.control_tokens
    text = compose(Layers(), PromptContext(user_input=f"a{expected}b")).to_text(template)
    assert expected not in text


def test_plain_html_among_the_added_tokens_is_text(tmp_path: Path) -> None:
    added = {"1": token("<b>", False), "2": token("<td>", True), "3": token("  ", False), "4": token("x", False)}
    config = {"chat_template": SOURCE, "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    text = compose(Layers(), PromptContext(user_input="<b> <td>  x")).to_text(JinjaChatTemplate.from_file(tmp_path))
    assert "<b> <\u200btd>  x" in text


def test_a_model_with_a_thousand_reserved_tokens(tmp_path: Path) -> None:
    added = {str(number): token(f"<SPECIAL_{number}>") for number in range(1_000)}
    config = {"chat_template": SOURCE, "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    template = JinjaChatTemplate.from_file(tmp_path)
    text = compose(Layers(), PromptContext(user_input="<SPECIAL_1> <SPECIAL_999>")).to_text(template)
    assert "<\u200bSPECIAL_1> <\u200bSPECIAL_999>" in text


@for_cases("name", CHAT_TEMPLATES)
def test_each_registered_template_has_the_tokens_of_its_models(name: str) -> None:
    model_tokens = CHAT_TEMPLATES.get(name).model_tokens  # type: ignore[attr-defined]
    assert model_tokens
    for one in model_tokens:
        attack = one if one[-1] in ">]" else f"{one}7|>"
        text = compose(Layers(), PromptContext(user_input=f"a{attack}b")).to_text(name)
        assert f"a{attack}b" not in text
        assert one[0] + "\u200b" in text


@for_cases(
    ("name", "tokens"),
    [
        ("llama3_1", ["<|reserved_special_token_5|>", "<|python_tag|>", "<|finetune_right_pad_id|>"]),
        ("qwen2d5-vl", ["<|vision_start|>", "<|image_pad|>", "<tool_call>", "<|fim_prefix|>"]),
        ("deepseek-r1", ["<｜tool▁calls▁begin｜>", "<｜place▁holder▁no▁3｜>", "<|EOT|>"]),
        ("mistral", ["[TOOL_CALLS]", "[control_8]", "<SPECIAL_20>"]),
        ("gemma", ["<start_of_image>", "<unused7>"]),
        ("gpt-oss", ["<|reserved_200012|>", "<|endofprompt|>"]),
    ],
)
def test_special_tokens_of_well_known_models(name: str, tokens: list[str]) -> None:
    text = compose(Layers(), PromptContext(user_input=" ".join(tokens))).to_text(name)
    assert not [token for token in tokens if token in text]


_TOKENIZERS = json.loads(Path(__file__).with_name("tokenizers.json").read_text("utf-8"))["tokenizers"]


@for_cases(
    ("tokenizer", "name"),
    [(tokenizer, name) for tokenizer, row in _TOKENIZERS.items() for name in row["templates"]],
)
def test_registered_templates_have_the_special_tokens_of_real_tokenizers(tokenizer: str, name: str) -> None:
    for token in _TOKENIZERS[tokenizer]["tokens"]:
        attack = f"a{token}b"
        assert attack not in compose(Layers(), PromptContext(user_input=attack)).to_text(name), token


COMPOSED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}{{ '<|th' ~ 'ink|>' }}{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{% set a = '<|ca' %}{{ a ~ 'll|>' }}{{ c.function.name }}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% for d in documents or [] %}{{ '<|d' + 'oc|>' }}{{ d.text }}{% endfor %}"
)


def test_tokens_that_a_template_builds_for_calls_thoughts_and_documents_are_found() -> None:
    attack = "<|call|><|think|><|doc|>"
    text = compose(Layers(), PromptContext(user_input=attack)).to_text(JinjaChatTemplate(COMPOSED))
    assert all(token not in text for token in ("<|call|>", "<|think|>", "<|doc|>"))


@pytest.mark.parametrize("name", ["rag.jinja", "chat_template.json", "additional_chat_templates/rag.jinja"])
def test_the_tokens_of_a_model_are_read_with_any_name_of_the_template_file(tmp_path: Path, name: str) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    config = {"eos_token": "<|eos|>", "added_tokens_decoder": {"1": {"content": "<|fim|>", "special": True}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / name).write_text(json.dumps({"chat_template": source}) if name.endswith(".json") else source)
    template = JinjaChatTemplate.from_file(tmp_path / name)
    assert {"<|eos|>", "<|fim|>"} <= {*template.control_tokens}
    assert template.eos_token == "<|eos|>"


def test_texts_on_both_sides_of_a_value_do_not_form_a_token() -> None:
    apart = "{% if m.content == 'apart' %}{{ '<|a' ~ m.content ~ 'b|>' }}{% endif %}"
    turn = "{{ m.content }}{{ '<|turn' ~ '|>' }}"
    template = JinjaChatTemplate("{% for m in messages %}" + turn + apart + "{% endfor %}", lossy=True)
    assert "<|turn|>" in template.control_tokens
    assert "<|ab|>" not in template.control_tokens
