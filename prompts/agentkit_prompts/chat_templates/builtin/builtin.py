"""Built-in templates: each row of `role_markers.json` becomes a class.

A row contains its Python class or its base row, and the fields that differ. `match` is a regular expression of model
names that must end at the end of a word: `llama-3b` is not Llama 3. The rest of a name must consist of words in
`model_name_words`; a word that only this family uses is a part of its `match`. A `replaceable` row is an example of the
LMDeploy document, so a custom class can use its name. `special_tokens.json` contains the special tokens of the models,
each list with its source file and its uncertainties. `{0..9}` means the numbers from 0 to 9; a token without its end,
such as `<|extra_`, means all tokens with this start.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any, cast

from agentkit_prompts.chat_templates.builtin.chatglm import ChatGLM2Template
from agentkit_prompts.chat_templates.builtin.codellama import CodeLlamaTemplate
from agentkit_prompts.chat_templates.builtin.gpt_oss import GptOssTemplate
from agentkit_prompts.chat_templates.builtin.internlm2 import InternLM2Template, InternS1Template
from agentkit_prompts.chat_templates.builtin.llama3_1 import Llama31Template
from agentkit_prompts.chat_templates.builtin.qwen2_5 import Qwen25Template
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate

_CODE: dict[str, type[RoleMarkerTemplate]] = {
    "chatglm2": ChatGLM2Template,
    "codellama": CodeLlamaTemplate,
    "gpt_oss": GptOssTemplate,
    "internlm2": InternLM2Template,
    "interns1": InternS1Template,
    "llama3_1": Llama31Template,
    "qwen2_5": Qwen25Template,
}
_NOT_FIELDS = ("code", "like", "match")
# End of a word in the name of a model.
_END = "(?![a-z0-9])"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@cache
def builtin() -> tuple[dict[str, type[RoleMarkerTemplate]], dict[str, re.Pattern[str]]]:
    """Return the classes by the names of their rows, and the patterns of their model names, in the order of the rows.

    Patterns match names in lower case.
    """
    rows = _read("role_markers.json")
    tokens = _model_tokens()
    templates: dict[str, type[RoleMarkerTemplate]] = {}
    for name, row in rows.items():
        base = _CODE.get(row.get("code", ""), RoleMarkerTemplate)
        if "like" in row:
            base = templates[row["like"]]
        fields = {key: _frozen(value) for key, value in row.items() if key not in _NOT_FIELDS}
        fields |= {"model_tokens": tokens.get(name, ()), "__module__": __name__, "__doc__": base.__doc__}
        templates[name] = cast("type[RoleMarkerTemplate]", type(name, (base,), fields))
    return templates, {name: re.compile(f"(?:{row['match']}){_END}") for name, row in rows.items() if "match" in row}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read(name: str) -> dict[str, dict[str, Any]]:
    text = resources.files("agentkit_prompts.chat_templates.builtin").joinpath(name).read_text("utf-8")
    return cast("dict[str, dict[str, Any]]", json.loads(text))


def _model_tokens() -> dict[str, tuple[str, ...]]:
    """Return the special tokens of the models of each row."""
    tokens_of: dict[str, dict[str, None]] = {}
    for family in _read("special_tokens.json").values():
        tokens = [spelling for token in family["tokens"] for spelling in _numbered(token)]
        for name in family["of"]:
            tokens_of.setdefault(name, {}).update(dict.fromkeys(tokens))
    return {name: tuple(tokens) for name, tokens in tokens_of.items()}


def tokens_without_template() -> list[str]:
    """Return the special tokens of models without a row."""
    families = [family for family in _read("special_tokens.json").values() if not family["of"]]
    return [spelling for family in families for token in family["tokens"] for spelling in _numbered(token)]


def _numbered(token: str) -> list[str]:
    match = _RANGE.search(token)
    if match is None:
        return [token]
    numbers = range(int(match[1]), int(match[2]) + 1)
    return [f"{token[: match.start()]}{number}{token[match.end() :]}" for number in numbers]


def __getattr__(name: str) -> type[RoleMarkerTemplate]:
    """Return the class of a row, so that templates can be pickled."""
    # Python looks up many dunder names; do not read the rows for them.
    if not name.startswith("_"):
        templates, _ = builtin()
        if name in templates:
            return templates[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
