"""Names of models of a registered chat template: the names of the makers, and their conversions."""

from __future__ import annotations

import pytest

from agentkit.models import CompletionModel
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError
from agentkit_prompts.chat_templates.template_finder import find_chat_template
from tests.cases import for_cases

OFFICIAL = {
    "llama2": """
        llama-2-7b-chat.ggmlv3.q4_0.bin ISTA-DASLab/Llama-2-7b-AQLM-2Bit-1x16-hf
        meta-llama/Llama-2-7b-chat-hf meta-llama/Llama-2-70b-chat TheBloke/Llama-2-7B-Chat-GGUF
        TheBloke/Llama-2-13B-chat-GPTQ TheBloke/Llama-2-13B-chat-AWQ
    """,
    "llama3": """
        meta-llama/Meta-Llama-3-8B-Instruct meta-llama/Meta-Llama-3-70B
        mlx-community/Meta-Llama-3-8B-Instruct-8bit llama3:8b-text
    """,
    "llama3_1": """
        meta-llama/Llama-3.1-8B-Instruct meta-llama/Meta-Llama-3.1-405B-Instruct-FP8
        meta-llama/Llama-3.3-70B-Instruct hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4
        unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16
        neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic amd/Llama-3.1-8B-Instruct-FP8-KV
        nvidia/Llama-3.3-70B-Instruct-NVFP4 bartowski/Meta-Llama-3.1-8B-Instruct-GGUF
        Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf Meta-Llama-3.1-70B-Instruct-IQ4_XS-00001-of-00002.gguf
        meta-llama_Llama-3.3-70B-Instruct-Q4_K_M.gguf llama3.1:8b-instruct-q4_K_M llama3.3:70b
        meta-llama/llama-3.1-8b-instruct:free Llama-3.1-8B-Instruct-q4f16_1-MLC
        turboderp/Llama-3.1-8B-Instruct-exl2
    """,
    "llama3_2": """
        meta-llama/Llama-3.2-1B-Instruct meta-llama/Llama-3.2-11B-Vision-Instruct
        meta-llama/Llama-3.2-1B-Instruct-QLORA_INT4_EO8 meta-llama/Llama-3.2-3B-Instruct-SpinQuant_INT4_EO8
        unsloth/Llama-3.2-3B-Instruct-unsloth-bnb-4bit mlx-community/Llama-3.2-3B-Instruct-4bit
        llama3.2:latest
    """,
    "llama4": """
        meta-llama/Llama-4-Scout-17B-16E-Instruct meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8
    """,
    "codellama": """
        codellama/CodeLlama-7b-Instruct-hf codellama/CodeLlama-34b-Python-hf
        TheBloke/CodeLlama-13B-Instruct-GGUF
    """,
    "qwen3": """
        Qwen/Qwen3-4B-Thinking-2507-FP8 Qwen/Qwen3-0.6B Qwen/Qwen3-30B-A3B Qwen/Qwen3-235B-A22B-Instruct-2507
        Qwen/Qwen3-30B-A3B-Thinking-2507 Qwen/Qwen3-4B-Instruct-2507-FP8 Qwen/Qwen3-8B-Base
        Qwen/Qwen3-32B-MLX-4bit unsloth/Qwen3-30B-A3B-128K-GGUF Qwen3-30B-A3B-UD-Q4_K_XL.gguf
        Qwen_Qwen3-8B-Q4_K_M.gguf qwen3:30b-a3b-q4_K_M
    """,
    "phi-3": """
        microsoft/Phi-3-medium-4k-instruct-onnx-cuda
        microsoft/Phi-3.5-vision-instruct microsoft/Phi-3-mini-4k-instruct
        microsoft/Phi-3-mini-4k-instruct-gguf microsoft/Phi-3-medium-128k-instruct
        microsoft/Phi-3-mini-4k-instruct-onnx microsoft/Phi-3-vision-128k-instruct
        microsoft/Phi-3.5-mini-instruct microsoft/Phi-3.5-MoE-instruct
    """,
    "phi-4": """
        microsoft/Phi-4-mini-flash-reasoning microsoft/Phi-4-mini-instruct microsoft/Phi-4-multimodal-instruct
        microsoft/Phi-4-mini-reasoning
    """,
    "internlm2": """
        internlm/internlm2-math-7b internlm/internlm2_5-1_8b-chat internlm/internlm2-base-20b
        internlm/internlm2-chat-20b internlm/internlm2-chat-7b-sft internlm/internlm2_5-7b-chat-1m
        internlm/internlm2_5-20b-chat-gguf internlm/internlm2-math-plus-7b
    """,
    "qwen2d5": """
        /models/Qwen/Qwen2.5-7B-Instruct/checkpoint-500 /m/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b2c
        Qwen/Qwen2.5-0.5B-Instruct Qwen/Qwen2.5-72B-Instruct-AWQ Qwen/Qwen2.5-7B-Instruct-GGUF
        qwen2.5-7b-instruct-q4_k_m.gguf Qwen/Qwen2.5-14B-Instruct-1M Qwen/Qwen2.5-Coder-32B-Instruct
        Qwen/Qwen2.5-Coder-7B-Instruct-GPTQ-Int8 Qwen/Qwen2.5-Math-72B-Instruct qwen2.5-coder:7b
    """,
    "mistral": """
        mistral-small:22b mistralai/Mistral-7B-Instruct-v0.1 mistralai/Mistral-7B-v0.3
        mistralai/Mistral-Nemo-Instruct-2407 mistralai/Mistral-Large-Instruct-2407
        mistralai/Mistral-Small-Instruct-2409 TheBloke/Mistral-7B-Instruct-v0.2-GGUF
        TheBloke/Mistral-7B-Instruct-v0.2-AWQ mistral-nemo:12b
    """,
    "qwen": """
        Qwen/Qwen-7B-Chat Qwen/Qwen-14B-Chat-Int4 Qwen/Qwen-VL-Chat Qwen/Qwen1.5-110B-Chat
        Qwen/Qwen1.5-MoE-A2.7B-Chat Qwen/CodeQwen1.5-7B-Chat Qwen/Qwen1.5-7B-Chat-GPTQ-Int4
        Qwen/Qwen2-72B-Instruct Qwen/Qwen2-57B-A14B-Instruct Qwen/Qwen2-VL-7B-Instruct
        Qwen/Qwen2-Audio-7B-Instruct Qwen/Qwen2-Math-7B-Instruct
    """,
    "qwen2d5-vl": """
        Qwen/Qwen2.5-VL-72B-Instruct-AWQ qwen2.5vl:7b
    """,
    "qwq": """
        Qwen/QwQ-32B Qwen/QwQ-32B-AWQ
    """,
    "qwq_preview": """
        Qwen/QwQ-32B-Preview
    """,
    "mixtral": """
        mistralai/Mixtral-8x7B-Instruct-v0.1 mistralai/Mixtral-8x22B-Instruct-v0.1
        TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ mixtral:8x7b
    """,
    "gemma": """
        google/gemma-3-4b-it-qat-int4-unquantized google/gemma-7b-it-quant-pytorch google/gemma-3n-E2B-it-litert-lm
        google/gemma-2b-it google/gemma-1.1-7b-it google/gemma-2-9b-it google/gemma-2-2b-jpn-it
        google/gemma-3-27b-it google/gemma-3-1b-pt google/gemma-3n-E4B-it google/gemma-3-12b-it-qat-q4_0-gguf
        google/codegemma-7b-it google/medgemma-4b-it google/recurrentgemma-2b-it unsloth/gemma-3-4b-it-GGUF
        google_gemma-3-12b-it-GGUF gemma3n:e4b
    """,
    "internlm-chat-7b": """
        internlm/internlm-chat-7b
    """,
    "internlm-20b": """
        internlm/internlm-20b
    """,
    "internlm-chat-7b-8k": """
        internlm/internlm-chat-7b-8k
    """,
    "internlm3": """
        internlm/internlm3-8b-instruct internlm/internlm3-8b-instruct-gptq-int4
    """,
    "internlm-xcomposer2": """
        internlm/internlm-xcomposer2-vl-7b internlm/internlm-xcomposer2-4khd-7b
    """,
    "internlm-xcomposer2d5": """
        internlm/internlm-xcomposer2d5-7b
    """,
    "intern-s1": """
        internlm/Intern-S1 internlm/Intern-S1-mini-FP8
    """,
    "internvl-internlm2": """
        OpenGVLab/InternVL-Chat-V1-5 OpenGVLab/Mini-InternVL-Chat-2B-V1-5
    """,
    "internvl2-internlm2": """
        OpenGVLab/InternVL2-8B-AWQ
    """,
    "internvl-zh-hermes2": """
        OpenGVLab/InternVL2-40B OpenGVLab/InternVL-Chat-V1-2-Plus
    """,
    "internvl2-phi3": """
        OpenGVLab/InternVL2-4B
    """,
    "internvl2_5": """
        OpenGVLab/InternVL3_5-38B-Flash OpenGVLab/InternVL3-1B-Pretrained
        OpenGVLab/InternVL2_5-8B-MPO OpenGVLab/InternVL3-78B OpenGVLab/InternVL3-8B-Instruct
        OpenGVLab/InternVL3_5-30B-A3B
    """,
    "deepseek-v3": """
        deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-V3-0324 deepseek-ai/DeepSeek-V3-Base
    """,
    "deepseek-r1": """
        deepseek-r1:7b-qwen-distill-q4_K_M
        deepseek-ai/DeepSeek-R1 deepseek-ai/DeepSeek-R1-Zero deepseek-ai/DeepSeek-R1-0528
        deepseek-ai/DeepSeek-R1-0528-Qwen3-8B deepseek-ai/DeepSeek-R1-Distill-Llama-70B
        unsloth/DeepSeek-R1-Distill-Qwen-7B-GGUF unsloth/DeepSeek-R1-Distill-Llama-8B-unsloth-bnb-4bit
        deepseek-r1:7b deepseek-r1:8b-0528-qwen3-q4_K_M
    """,
    "deepseek": """
        deepseek-ai/deepseek-llm-67b-chat deepseek-ai/DeepSeek-V2-Lite-Chat deepseek-ai/DeepSeek-V2.5-1210
        deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct deepseek-ai/deepseek-math-7b-rl
        deepseek-ai/deepseek-moe-16b-chat
    """,
    "deepseek-coder": """
        deepseek-ai/deepseek-coder-33b-instruct deepseek-ai/deepseek-coder-7b-instruct-v1.5
    """,
    "deepseek-vl": """
        deepseek-ai/deepseek-vl-7b-chat
    """,
    "deepseek-vl2": """
        deepseek-ai/deepseek-vl2-tiny
    """,
    "yi": """
        01-ai/Yi-34B-Chat 01-ai/Yi-6B-Chat-4bits 01-ai/Yi-34B-200K 01-ai/Yi-1.5-9B-Chat-16K
        01-ai/Yi-Coder-9B-Chat TheBloke/Yi-34B-Chat-AWQ
    """,
    "yi-vl": """
        01-ai/Yi-VL-34B
    """,
    "chatglm": """
        THUDM/chatglm2-6b-int4
    """,
    "chatglm3": """
        THUDM/chatglm3-6b-32k
    """,
    "glm4": """
        THUDM/glm-4-9b-chat THUDM/glm-4-9b-chat-1m-hf THUDM/GLM-4-32B-0414
    """,
    "codegeex4": """
        THUDM/codegeex4-all-9b
    """,
    "cogvlm": """
        THUDM/cogvlm-chat-hf
    """,
    "cogvlm2": """
        THUDM/cogvlm2-llama3-chat-19B THUDM/cogvlm2-llama3-chinese-chat-19B-int4
    """,
    "vicuna": """
        lmsys/vicuna-7b-v1.5 lmsys/vicuna-13b-v1.5-16k TheBloke/vicuna-13B-v1.5-GPTQ
        lmsys/vicuna-13b-delta-v1.1
    """,
    "wizardlm": """
        WizardLMTeam/WizardLM-13B-V1.2 microsoft/WizardLM-2-8x22B
    """,
    "llava-v1": """
        liuhaotian/llava-v1.5-7b llava-hf/llava-1.5-7b-hf llava-hf/llava-v1.6-vicuna-7b-hf
    """,
    "llava-chatml": """
        llava-hf/llava-v1.6-34b-hf liuhaotian/llava-v1.6-34b
    """,
    "baichuan2": """
        baichuan-inc/Baichuan2-13B-Chat-4bits
    """,
    "solar": """
        upstage/SOLAR-10.7B-Instruct-v1.0 upstage/SOLAR-0-70b-16bit
    """,
    "ultracm": """
        openbmb/UltraCM-13b
    """,
    "ultralm": """
        openbmb/UltraLM-13b-v2.0
    """,
    "minicpm3": """
        openbmb/MiniCPM3-4B
    """,
    "minicpmv-2d6": """
        openbmb/MiniCPM-V-2_6-int4 openbmb/MiniCPM-V-2_6-gguf
    """,
    "molmo": """
        allenai/Molmo-7B-D-0924 allenai/MolmoE-1B-0924
    """,
    "gpt-oss": """
        openai/gpt-oss-20b openai/gpt-oss-safeguard-20b unsloth/gpt-oss-120b-GGUF gpt-oss:20b
    """,
}
OTHERS = """
    ajibawa-2023/Code-Llama-3-8B HuggingFaceH4/mistral-7b-sft-beta mistralai/Mistral-Small-24B-Instruct-2501
    mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistralai/Mistral-Large-Instruct-2411 x/CodeMistral-7B
    NousResearch/Hermes-3-Llama-3.1-8B allenai/Llama-3.1-Tulu-3-8B teknium/OpenHermes-2.5-Mistral-7B
    NousResearch/Hermes-2-Pro-Mistral-7B cognitivecomputations/dolphin-2.9-llama3-8b
    cognitivecomputations/dolphin-2.7-mixtral-8x7b NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO
    NousResearch/Nous-Hermes-2-SOLAR-10.7B NousResearch/Nous-Hermes-2-Yi-34B NousResearch/Nous-Hermes-Llama2-13b
    Open-Orca/Mistral-7B-OpenOrca BioMistral/BioMistral-7B TheBloke/stable-vicuna-13B-HF
    cognitivecomputations/WizardLM-7B-Uncensored cognitivecomputations/dolphin-2.9.2-qwen2-7b
    codellama/CodeLlama-70b-Instruct-hf OpenGVLab/InternVL2-Llama3-76B xtuner/llava-llama-3-8b-v1_1
    llava-hf/llava-v1.6-mistral-7b-hf nvidia/Llama3-ChatQA-1.5-8B Gorilla/gorilla-openfunctions-llama-2-7b
    meetkai/functionary-small-v2.2-mistral google/functiongemma-270m-it google/paligemma-3b-mix-224
    intfloat/e5-mistral-7b-instruct OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview Qwen/Qwen3Guard-Gen-8B
    Qwen/Qwen3-Embedding-8B NousResearch/DeepHermes-3-Llama-3-8B-Preview
    stabilityai/japanese-stablelm-instruct-gamma-7b meta-llama/Llama-Guard-3-8B
    nvidia/Llama-3_3-Nemotron-Super-49B-v1 /models/Qwen/Something-New/weights /models/mistral/OpenHermes-2.5
    NousResearch_Hermes-3-Llama-3.1-8B-Q4_K_M.gguf NousResearch/Llama-2-7b-chat-orca
    gorilla-llm/Llama-3-Groq-8B-Tool-Use Llama-xLAM-2-8b-fc-r
"""


@for_cases(("model", "name"), [(model, name) for name in OFFICIAL for model in OFFICIAL[name].split()])
def test_the_name_of_the_maker_is_recognised_in_each_conversion(model: str, name: str) -> None:
    assert CHAT_TEMPLATES.best_match(model) == name


@for_cases("model", OTHERS.split())
def test_a_derived_model_is_not_matched_with_its_base_model(model: str) -> None:
    for find in (CHAT_TEMPLATES.best_match, find_chat_template):
        with pytest.raises(ChatTemplateError) as caught:
            find(model)
        assert caught.value.name == model


def test_the_error_suggests_the_template_that_matches_a_part_of_the_name() -> None:
    model = "NousResearch/Hermes-3-Llama-3.1-8B"
    with pytest.raises(ChatTemplateError) as caught:
        CompletionModel(model, base_url="http://localhost:1")
    assert (caught.value.name, caught.value.template) == (model, "llama3_1")


def test_an_explicit_name_overrides_the_name_of_the_model() -> None:
    model = CompletionModel("NousResearch/Hermes-3-Llama-3.1-8B", "qwen", base_url="http://localhost:1")
    assert "<|im_end|>" in model.stop_words
