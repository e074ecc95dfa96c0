"""Table of the settings that each family of OpenAI models supports: the API refuses other settings with status 400.

From OpenAI's guides on reasoning and on the latest model, its deployment checklist and the pages of its models
(developers.openai.com/api/docs), the types of its SDK, and, for gaps, responses of the API that users reported; as of
November 2026. If the sources contradict each other, a setting is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from agentkit.models.settings import ModelSettings

_LEVELS = ("low", "medium", "high")
_TO_XHIGH = (*_LEVELS, "xhigh")
_SAMPLING = ("temperature", "top_p")
_SAMPLING_EXTRA = ("logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty")
_ADVICE = "remove it, or send it with extra={...} if the model supports it now"


class OpenAIRules(NamedTuple):
    """Settings that a model supports."""

    efforts: tuple[str, ...]
    """Levels of effort, in ascending order; with `none` the model does not think."""
    thinks: bool = True
    """True if the model thinks by default: it then refuses temperature, top_p and log probabilities."""
    stop: bool = False
    """True if a stop text may end a reply."""
    parallel: bool = True
    """True if chat completions support the setting `parallel_tool_calls`."""
    chat: Literal["any", "calls without effort", "no calls", "none"] = "any"
    """Support in chat completions: full; tool calls only with the effort `none`; no tool calls; no support."""

    @property
    def reasons(self) -> bool:
        """True if the model can think."""
        return self.thinks or bool(self.efforts)


_O_SERIES = OpenAIRules(_LEVELS, parallel=False)
_PLAIN = OpenAIRules((), thinks=False, stop=True)
_NEWEST = OpenAIRules(("none", *_TO_XHIGH, "max"))

_ROWS: Sequence[tuple[str, OpenAIRules]] = (
    (r"(o1|o3)-pro|o[34].*-deep-research|codex-mini", _O_SERIES._replace(chat="none")),
    (r"o1-(mini|preview)", OpenAIRules((), parallel=False)),
    (r"o1|o3-mini", _O_SERIES._replace(stop=True)),
    (r"o[34]", _O_SERIES),
    (r"gpt-6-astra|gpt-6\.1-sol", OpenAIRules((*_TO_XHIGH, "max"), chat="no calls")),
    (r"gpt-6-(sol|luna)", _NEWEST._replace(chat="calls without effort")),
    (r"gpt-(6|5\.6).*-(cyber|rosalind|law)", _NEWEST._replace(chat="none")),
    (r"gpt-(5\.6|[6-9])", _NEWEST),
    (r"gpt-5\.5-pro", OpenAIRules(("medium", "high", "xhigh"), chat="none")),
    (r"gpt-5\.5", OpenAIRules(("none", *_TO_XHIGH))),
    (r"gpt-5\.[2-4]-pro", OpenAIRules(("medium", "high", "xhigh"))),
    (r"gpt-5\.[1-3]-chat", OpenAIRules(("medium",))),
    (r"gpt-5\.[2-4]", OpenAIRules(("none", *_TO_XHIGH), thinks=False)),
    (r"gpt-5\.1-codex-max", OpenAIRules(_TO_XHIGH, chat="none")),
    (r"gpt-5\.1-codex", OpenAIRules(_LEVELS)),
    (r"gpt-5\.1", OpenAIRules(("none", *_LEVELS), thinks=False)),
    (r"gpt-5-chat", _PLAIN),
    (r"gpt-5-search", OpenAIRules(())),
    (r"gpt-5-pro", OpenAIRules(("high",), chat="none")),
    (r"gpt-5-codex", OpenAIRules(_LEVELS, chat="none")),
    (r"gpt-5(?![.\d])", OpenAIRules(("minimal", *_LEVELS))),
    (r"gpt-4o.*-search", OpenAIRules((), stop=True)),
    (r"gpt-(3\.5|4)|chatgpt-4o", _PLAIN),
)
"""Pattern of the start of a model name, and the rules; the first match applies."""


@lru_cache(maxsize=64)
def openai_rules(model: str) -> OpenAIRules | None:
    """Return the rules of a model; None if the model is unknown."""
    name = model.lower().removeprefix("ft:")
    return next((rules for pattern, rules in _ROWS if re.match(pattern, name)), None)


def refused_settings(settings: ModelSettings, rules: OpenAIRules, *, is_chat: bool) -> Iterator[str]:
    """Yield the problems of settings that a model refuses, in chat completions or in the Responses API."""
    # Chat completions do not support the level `max`.
    efforts = [level for level in rules.efforts if level != "max" or not is_chat]
    if is_chat:
        yield from _refused_in_chat(settings, rules)
    yield from _refused_effort(settings.effort, efforts, rules)
    thinks = rules.thinks
    if settings.effort in efforts:
        thinks = settings.effort != "none"
    if thinks:
        yield from _refused_sampling(settings, efforts)
    if settings.stop is not None and not rules.stop:
        yield f"stop={settings.stop!r:.40}: this model does not support it; {_ADVICE}"
    yield from _refused_parallel(settings, is_supported=rules.parallel or not is_chat)


def _refused_in_chat(settings: ModelSettings, rules: OpenAIRules) -> Iterator[str]:
    if rules.chat == "none":
        yield "model: it supports only the Responses API: use OpenAIResponsesModel, or a name with responses:"
    # Only models that reason refuse the old name of the token limit.
    if "max_tokens" in settings.extra and rules.reasons:
        yield "extra['max_tokens']: this model expects max_completion_tokens: set ModelSettings(max_tokens=...)"


def _refused_parallel(settings: ModelSettings, *, is_supported: bool) -> Iterator[str]:
    parallel = settings.parallel_tool_calls
    if parallel is not None and not is_supported:
        yield f"parallel_tool_calls={parallel}: this model does not support it; remove it"
    elif parallel and settings.effort == "minimal":
        yield "parallel_tool_calls=True cannot be combined with effort='minimal': remove one of them"


def _refused_effort(effort: str | None, efforts: Sequence[str], rules: OpenAIRules) -> Iterator[str]:
    if effort is None or effort in efforts:
        return
    problem = "this model has no effort"
    if efforts:
        problem = f"expected one of {', '.join(efforts)}"
    if effort in rules.efforts:
        problem += "; only the Responses API supports this effort"
    yield f"effort={effort!r}: {problem}"


def _refused_sampling(settings: ModelSettings, efforts: Sequence[str]) -> Iterator[str]:
    """Yield the problems of sampling settings, which a model refuses while it thinks."""
    problem = "this model does not support it, because it thinks"
    if "none" in efforts:
        problem = "this model does not support it while it thinks: set effort='none' too"
    for name in _SAMPLING:
        value = getattr(settings, name)
        if value is not None:
            yield f"{name}={value}: {problem}; {_ADVICE}"
    for name in _SAMPLING_EXTRA:
        if name in settings.extra:
            yield f"extra[{name!r}]: {problem}; remove it"
