"""Words in the name of a model that do not change its chat template, and words that can."""

from __future__ import annotations

import re

_SEPARATOR = re.compile(r"[/\\]+")
_BETWEEN = re.compile(r"[\W_]+")
_MAKER = re.compile(
    r"(meta-llama|codellama|mistralai|mistral-ai|qwen|google|microsoft|deepseek-ai|internlm|opengvlab|openbmb|openai"
    r"|thudm|zai-org|zai|01-ai|lmsys|allenai|baichuan-inc|upstage|llava-hf|liuhaotian|wizardlmteam|unsloth"
    r"|lmstudio-community)_"
)
"""Maker of a model before its name, as in the names of converted models."""
_IN_FRONT = re.compile(r"meta|hf|ggml|unsloth|\d+")
_KNOWN = re.compile(
    # numbers, dates, versions; sizes such as 7b, 8x7b, a3b, e4b, 16e, 128k, 1m
    r"\d+|v\d+|[ae]\d+|[ae]?\d+(x\d+)?[bmke]|tiny|mini|small|medium|large|lite"
    # purpose of the training by its maker
    r"|base|pt|chat|instruct|it|hf|preview"
    # number formats and file formats
    r"|gguf|ggml|awq|gptq|exl[23]|mlx|mlc|onnx|openvino|ov|hqq|aqlm|marlin|torchao|bnb|bitsandbytes|unsloth|imat|imatrix"
    r"|i1|ud|quantized|quant|dynamic|static|block|kv|qat|spinquant|qlora|dwq|eo8|autoround|nvfp4|mxfp4|delta|safetensors"
    r"|(bf|fp|f|int|nf|uint)\d+|w\d+a\d+(kv\d+)?|q\d+f\d+|i?q\d+|\d*bpw|\d+bits?|h\d+|g\d+|\d+g|gs\d+|bin|pth|of"
    r"|k|s|m|l|xs|xl|xxs|xxl|nl|ggmlv\d|\d+x\d+|pytorch|litert|lm|cuda|cpu|directml|unquantized"
    # storage places, and names on servers
    r"|models?|main|latest|text|free|turbo|final|merged|checkpoint|ckpt|snapshots?|output|weights|epoch|step"
    # the same words, without refusals
    r"|abliterated"
)
_HASH = re.compile(r"[0-9a-f]{7,64}")


def parts_of(model: str) -> list[str]:
    """Return the possible names of the model, in lower case and the likeliest first."""
    parts = [part for part in _SEPARATOR.split(model.lower()) if part]
    for part in parts:
        # A folder of the Hugging Face cache.
        if part.startswith("models--"):
            return [part.rsplit("--", 1)[1]]
    # The name of a repository: organisation/name.
    if len(parts) == 2 and model[0] not in "/\\.~":
        return parts[1:]
    return parts[::-1]


def has_only_known(part: str) -> bool:
    """True if no word of a part of a path names a model, as in `checkpoint-500`."""
    return _HASH.fullmatch(part) is not None or not _others(part, _KNOWN)


def other_words(part: str, start: int, end: int) -> list[str]:
    """Return the words around the family name `part[start:end]` that can name another model.

    Sizes, versions, quantisations and common words of makers, such as `instruct`, are not included.
    """
    maker = _MAKER.match(part, 0, start)
    front = part[maker.end() if maker else 0 : start]
    words = _others(front, _IN_FRONT)
    # The family name is a part of a longer word.
    if not words and front and front[-1].isalnum():
        words = [front + part[start:end]]
    return words + _others(part[end:], _KNOWN)


def of_another(template: str, words: list[str]) -> str:
    """Return the reason why a template does not fit a model whose name has other words, with advice."""
    return (
        f"its name has {', '.join(map(repr, words))[:200]} in addition to the words of {template!r}, and a model "
        "derived from another model can have a separate template. Pass the folder or file of the template of the "
        f"model, or {template!r} by name if you are sure"
    )


def _others(text: str, known: re.Pattern[str]) -> list[str]:
    return [word for word in _BETWEEN.split(text) if word and known.fullmatch(word) is None]
