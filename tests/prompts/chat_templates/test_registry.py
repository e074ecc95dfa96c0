"""Registry of chat templates: by name, by the name of a model, and from a file that overrides a template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts.chat_templates import (
    CHAT_TEMPLATES,
    BaseTemplate,
    ChatTemplateConfig,
    ChatTemplateError,
    ChatTemplateRegistry,
    RoleMarkerTemplate,
)
from agentkit_prompts.chat_templates.template_finder import find_chat_template
from tests.cases import for_cases

HI = [{"role": "user", "content": "hi"}]


def test_a_class_is_registered_under_several_names_without_a_change() -> None:
    registry = ChatTemplateRegistry()

    @registry.register_module(name="mine-v1.5")
    @registry.register_module(name="mine")
    class Mine(RoleMarkerTemplate):
        user = "<me>"

    assert registry.get("mine-v1.5") is registry.get("mine") is Mine
    assert list(registry) == ["mine", "mine-v1.5"]
    assert len(registry) == 2
    assert "mine-v1.5" in registry
    assert "mine_v1.5" not in registry
    assert registry.get("mine")(user="<you>").render(HI) == "<you>hi"


def test_a_function_that_returns_a_template_is_registered() -> None:
    registry = ChatTemplateRegistry()
    registry.register_module(name="made")(lambda **fields: RoleMarkerTemplate(user="> ", **fields))
    assert registry.get("made")(eoh="\n").render(HI) == "> hi\n"


def test_a_repeated_name_is_refused_without_force() -> None:
    registry = ChatTemplateRegistry()
    registry.register_module(name="mine")(BaseTemplate)
    with pytest.raises(ChatTemplateError) as caught:
        registry.register_module(name="mine")(RoleMarkerTemplate)
    assert caught.value.name == "mine"
    assert registry.get("mine") is BaseTemplate
    registry.register_module(name="mine", force=True)(RoleMarkerTemplate)
    assert registry.get("mine") is RoleMarkerTemplate


def test_a_built_in_name_is_refused() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        CHAT_TEMPLATES.register_module(name="llama2")(BaseTemplate)
    assert caught.value.name == "llama2"
    assert CHAT_TEMPLATES.get("llama2") is not BaseTemplate


@for_cases("name", ["", "  ", None, 7])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplateRegistry().register_module(name=name)
    assert caught.value.name == str(name)


def test_a_value_that_is_not_a_factory_is_refused() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplateRegistry().register_module(name="x")(7)  # type: ignore[type-var]
    assert caught.value.name == "x"


@for_cases("name", ["qwen2.5", "QWEN2D5", "qwen25", None, 7, ["qwen"]])
def test_an_unknown_name_is_refused(name: Any) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        CHAT_TEMPLATES.get(name)
    assert caught.value.name == str(name)


@for_cases(
    ("model", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2d5"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2d5-vl"),
        ("Qwen/Qwen1.5-7B-Chat", "qwen"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/QwQ-32B", "qwq"),
        ("Qwen/QwQ-32B-Preview", "qwq_preview"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_1"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama3_2"),
        ("codellama/CodeLlama-7b-Instruct-hf", "codellama"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1"),
        ("deepseek-ai/deepseek-coder-6.7b-instruct", "deepseek-coder"),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek"),
        ("OpenGVLab/InternVL2-8B", "internvl2-internlm2"),
        ("OpenGVLab/InternVL2_5-8B", "internvl2_5"),
        ("internlm/internlm-chat-7b", "internlm-chat-7b"),
        ("internlm/internlm-chat-7b-8k", "internlm-chat-7b-8k"),
        ("internlm/internlm-chat-20b", "internlm-chat-20b"),
        ("internlm-7b", "internlm-7b"),
        ("/models/internlm-20b", "internlm-20b"),
        ("internlm/internlm2_5-7b-chat", "internlm2"),
        ("internlm/internlm-xcomposer2d5-7b", "internlm-xcomposer2d5"),
        ("THUDM/chatglm2-6b", "chatglm"),
        ("THUDM/glm-4-9b-chat", "glm4"),
        ("01-ai/Yi-34B-Chat", "yi"),
        ("01-ai/Yi-VL-6B", "yi-vl"),
        ("openai/gpt-oss-20b", "gpt-oss"),
        ("/models/Qwen/Qwen2.5-7B-Instruct/checkpoint-500", "qwen2d5"),
        ("C:\\models\\Phi-3-mini-4k-instruct", "phi-3"),
        ("~/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b2c/", "qwen2d5"),
        ("./gemma-2-9b-it", "gemma"),
        ("google/gemma-7b-it", "gemma"),
        ("gemma3:4b", "gemma"),
        ("qwen2.5vl:7b", "qwen2d5-vl"),
        ("llama3:8b", "llama3"),
        ("mistral:7b", "mistral"),
        ("allenai/MolmoE-1B-0924", "molmo"),
        ("dreamgen/WizardLM-2-7B", "wizardlm"),
    ],
)
def test_a_model_is_recognised_by_its_name(model: str, name: str) -> None:
    assert CHAT_TEMPLATES.best_match(model) == name


@for_cases(
    "model", ["Qwen/Something-New", "deepseek-ai/DeepSeek-V3.1", "/data/unknown-7b", "Qwen/Qwen3-Coder-30B", "", "/"]
)
def test_an_unknown_model_is_not_guessed(model: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        CHAT_TEMPLATES.best_match(model)
    assert caught.value.name == model


@for_cases(
    "model",
    [
        "qwen2d",
        "qwenn",
        "vicunaa",
        "llama31",
        "OpenLLaMA-3b",
        "llama-34b",
        "gemma4:31b",
        "google/gemma-4-31B-it",
        "molmo2-8b",
    ],
)
def test_a_name_that_only_begins_with_a_model_is_not_matched(model: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        find_chat_template(model)
    assert caught.value.name == model


def test_a_registered_name_is_recognised_as_a_model() -> None:
    registry = ChatTemplateRegistry()
    registry.register_module(name="My-Model")(RoleMarkerTemplate)
    assert registry.best_match("me/my-model") == "My-Model"


def test_a_config_overrides_its_fields() -> None:
    made: Any = ChatTemplateConfig("qwen", meta_instruction="be brief", stop_words=["X"]).chat_template
    assert made.render(HI).startswith("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi")
    assert made.stop_words == ["X"]
    assert made.eoa == "<|im_end|>"


def test_a_config_with_a_new_name_is_an_unregistered_template_with_its_markers() -> None:
    made = ChatTemplateConfig("new", user="<u>", assistant="<a>", capability="chat").chat_template
    assert made.render(HI) == "<u>hi<a>"
    assert "new" not in CHAT_TEMPLATES
    assert ChatTemplateConfig(user="<u>").chat_template.render(HI) == "<u>hi"


def test_a_misspelt_model_name_is_not_a_new_template() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        _ = ChatTemplateConfig("qwn", meta_instruction="be brief").chat_template
    assert caught.value.name == "qwn"


def test_a_config_survives_json_as_text_and_as_a_file(tmp_path: Path) -> None:
    config = ChatTemplateConfig("internlm2", meta_instruction="你好", stop_words=["a", "b"])
    path = tmp_path / "template.json"
    text = config.to_json(path)
    assert '"meta_instruction": "你好"' in text
    assert json.loads(text)["eoh"] is None
    assert config == ChatTemplateConfig.from_json(text) == ChatTemplateConfig.from_json(path)
    assert config == ChatTemplateConfig.from_json(str(path))


@for_cases(
    ("source", "template", "places"),
    [
        ("{not json", "the JSON text", []),
        ("[1]", "the JSON text", []),
        ('{"model_name": "zz", "usr": 1}', "the JSON text", ["usr"]),
        ('{"model_name": 3, "user": ["x"]}', "the JSON text", ["model_name", "user"]),
        ("no such file.json", "no such file.json", []),
        ("nul\x00", "nul\x00", []),
    ],
)
def test_an_unreadable_config_is_refused(source: str, template: str, places: list[str]) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplateConfig.from_json(source)
    assert caught.value.template == template
    assert [place for place, _ in caught.value.problems] == places


def test_the_values_of_a_config_are_checked_at_construction() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        _ = ChatTemplateConfig.from_json('{"user": "u", "stop_words": "x"}').chat_template
    assert [place for place, _ in caught.value.problems] == ["stop_words"]


@for_cases(
    ("fields", "problems"),
    [
        ({"stop_words": "<end>"}, {"stop_words"}),
        ({"session_len": "8k"}, {"session_len"}),
        ({"session_len": 0}, {"session_len"}),
        ({"tool_call_format": "herms"}, {"tool_call_format"}),
        ({"stop_words": [1], "temperature": "hot", "top_k": True}, {"stop_words", "temperature", "top_k"}),
    ],
)
def test_invalid_values_of_a_class_are_refused_like_the_values_of_its_constructor(
    fields: dict[str, Any], problems: set[str]
) -> None:
    for base in (BaseTemplate, RoleMarkerTemplate):
        with pytest.raises(ChatTemplateError) as of_keywords:
            base(**fields)
        with pytest.raises(ChatTemplateError) as of_class:
            type("Mine", (base,), {"__module__": "mine", **fields})
        for caught in (of_keywords, of_class):
            assert {problem.place for problem in caught.value.problems} == problems


@for_cases("name", ["stop_words", "control_tokens"])
def test_a_text_instead_of_a_list_of_texts_is_refused(name: str) -> None:
    class Own:
        stop_words: Sequence[str] = ["<end>"]
        control_tokens: Any = ("<end>",)

        def render(self, messages: Any, tools: Any = None, add_generation_prompt: bool = True, **kwargs: Any) -> str:
            return ""

    own = Own()
    assert find_chat_template(own) is own
    setattr(own, name, "<end>")
    with pytest.raises(ChatTemplateError) as caught:
        find_chat_template(own)
    assert caught.value.name == name


def test_a_class_can_compute_its_fields() -> None:
    attributes = {"__module__": "mine", "stop_words": property(lambda template: ["<end>"])}
    assert type("Mine", (BaseTemplate,), attributes)().stop_words == ["<end>"]
