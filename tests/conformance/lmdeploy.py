"""Cases of LMDeploy chat templates: a template is constructed, and its methods are called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentkit.prompts.chat_templates import CHAT_TEMPLATES, BaseTemplate, ChatTemplateConfig, ChatTemplateRegistry

DOCUMENT = ChatTemplateRegistry()
"""The models of the document, as classes that derive from `BaseTemplate` as in the document."""

DOCUMENT.register_module(name="internlm-7b")(BaseTemplate)


@DOCUMENT.register_module(name="internlm-20b")
class InternLM20B(BaseTemplate):
    """A template with completions only, and a longer context."""

    def __init__(self, session_len: int = 4096, capability: str = "completion", **kwargs: Any) -> None:
        super().__init__(session_len=session_len, capability=capability, **kwargs)


@DOCUMENT.register_module(name="internlm-chat-7b")
class InternLMChat7B(BaseTemplate):
    """A template with its markers in the constructor, and both methods."""

    eoa: str

    def __init__(
        self,
        system: str = "<|System|>:",
        meta_instruction: str | None = None,
        user: str = "<|User|>:",
        eoh: str = "\n",
        eosys: str = "\n",
        assistant: str = "<|Bot|>:",
        stop_words: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        known: Any = CHAT_TEMPLATES.get("internlm")()
        self.meta_instruction = known.meta_instruction if meta_instruction is None else meta_instruction
        self.system, self.eosys = system, eosys
        self.user, self.eoh, self.assistant = user, eoh, assistant
        self.stop_words = ["<eoa>"] if stop_words is None else stop_words

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        assert self.capability == "chat", f"{type(self).__name__} has no capability of {self.capability}"
        before = f"{self.system}{self.meta_instruction}{self.eosys}" if sequence_start else "\n"
        return f"{before}{self.user}{prompt}{self.eoh}{self.assistant}"

    def messages2prompt(self, messages: Any, sequence_start: bool = True) -> str:
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        markers = {
            "system": (self.system, self.eosys),
            "user": (self.user, self.eoh),
            "assistant": (self.assistant, self.eoa),
        }
        text = f"{self.system}{self.meta_instruction}{self.eosys}" if self.meta_instruction else ""
        for message in messages:
            begin, end = markers[message["role"]]
            text += f"{begin}{message['content']}{end}"
        return text + self.assistant


@DOCUMENT.register_module(name="internlm-chat-20b")
@DOCUMENT.register_module(name="internlm-chat-7b-8k")
class InternLMChat7B8K(InternLMChat7B):
    """A longer context."""

    def __init__(self, session_len: int = 8192, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.session_len = session_len


def check(case: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the id of a required case, with its problem or None."""
    if case["required"]:
        yield case["id"], _problem(case)


def _problem(case: Mapping[str, Any]) -> str | None:
    calls = [case["call"]] if "call" in case else case["calls"]
    given = copy.deepcopy(calls)
    try:
        template = _construct(case["construct"], case["version"])
        outputs = [_call(template, call) for call in given]
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    if given != calls:
        return "changed what it was given"
    output: Any = outputs[0] if "call" in case else outputs
    expected = case["expect"].get("output")
    return None if output == expected else f"expected {expected!r}, got {output!r}"


def _construct(construct: Mapping[str, Any], version: str) -> Any:
    if "config" in construct:
        return ChatTemplateConfig(**construct["config"])
    if "config_json" in construct:
        return ChatTemplateConfig.from_json(construct["config_json"])
    if "template" not in construct:
        return CHAT_TEMPLATES
    registry = DOCUMENT if version == "seed-doc-code" else CHAT_TEMPLATES
    template = registry.get(construct["template"])(**construct["kwargs"])
    for name, value in construct.get("set_attrs", {}).items():
        setattr(template, name, value)
    return template


def _call(template: Any, call: Mapping[str, Any]) -> Any:
    method = call["method"]
    special = _SPECIAL.get(method)
    if special is not None:
        return special(template, *call["args"])
    made = template.chat_template if isinstance(template, ChatTemplateConfig) else template
    return getattr(made, method)(*call["args"], **call["kwargs"])


def _attribute(template: Any, name: str) -> Any:
    made = template.chat_template if isinstance(template, ChatTemplateConfig) else template
    value = getattr(made, name)
    return list(value) if isinstance(value, tuple) else value


_SPECIAL: dict[str, Callable[..., Any]] = {
    "$attr": _attribute,
    "$to_json": lambda config: config.to_json(),
    "$best_match_model": lambda registry, model: registry.best_match(model),
    "$registry_get": lambda registry, name: registry.get(name) if name in registry else None,
}
