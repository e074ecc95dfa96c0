"""What each family of OpenAI models takes of the settings, as a table: the API answers 400 to the rest.

From OpenAI's guides on reasoning and on the latest model, its deployment checklist and the pages of its models
(developers.openai.com/api/docs), the types of its SDK, and, where these do not say it, answers of the API that users
reported; as of November 2026. Where they contradict each other, what one of them allows is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from agentkit.models.settings import ModelSettings

__all__ = ["openai_rules", "refused_settings"]

_LEVELS = ("low", "medium", "high")
_TO_XHIGH = (*_LEVELS, "xhigh")
_SAMPLING = ("temperature", "top_p")
_SAMPLING_EXTRA = ("logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty")
_ADVICE = "leave it out, or send it with extra={...} if the model takes it by now"


class OpenAIRules(NamedTuple):
    """What a model takes."""

    efforts: tuple[str, ...]
    """The levels of effort that it knows, the least first; with `none` it does not think."""
    thinks: bool = True
    """Whether it thinks where no effort is given: temperature, top_p and log probabilities are unknown then."""
    stop: bool = False
    """Whether a reply can be ended by a text."""
    parallel: bool = True
    """Whether chat completions take a limit of tool calls per reply."""
    chat: Literal["any", "calls without effort", "no calls", "none"] = "any"
    """What it does behind chat completions: all; tools where its effort is none; no tools; nothing at all."""

    @property
    def reasons(self) -> bool:
        """Whether it thinks at all."""
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
"""How names begin, and what those models take; the first row that fits holds."""


@lru_cache(maxsize=64)
def openai_rules(model: str) -> OpenAIRules | None:
    """Return what a model of this name takes; None where nothing is known of it."""
    name = model.lower().removeprefix("ft:")
    return next((rules for pattern, rules in _ROWS if re.match(pattern, name)), None)


def refused_settings(settings: ModelSettings, rules: OpenAIRules, *, is_chat: bool) -> Iterator[str]:
    """Yield the settings that a model refuses, in chat completions or in the Responses API."""
    if is_chat and rules.chat == "none":
        yield "model: it answers the Responses API only: make an OpenAIResponsesModel of that name"
    # Chat completions have no level `max`, whatever the model.
    efforts = [level for level in rules.efforts if level != "max" or not is_chat]
    yield from _refused_effort(settings.effort, efforts, rules)
    thinks = rules.thinks
    if settings.effort in efforts:
        thinks = settings.effort != "none"
    if thinks:
        yield from _refused_sampling(settings, efforts)
    if settings.stop is not None and not rules.stop:
        yield f"stop={settings.stop!r:.40}: this model does not take it; {_ADVICE}"
    # Models that do not reason take the old name of the limit, too.
    if is_chat and "max_tokens" in settings.extra and rules.reasons:
        yield "extra['max_tokens']: this model knows it as max_completion_tokens: give ModelSettings(max_tokens=...)"
    yield from _refused_parallel(settings, takes_limit=rules.parallel or not is_chat)


def _refused_parallel(settings: ModelSettings, *, takes_limit: bool) -> Iterator[str]:
    parallel = settings.parallel_tool_calls
    if parallel is not None and not takes_limit:
        yield f"parallel_tool_calls={parallel}: this model does not take it; leave it out"
    elif parallel and settings.effort == "minimal":
        yield "parallel_tool_calls=True cannot be combined with effort='minimal': leave one of them out"


def _refused_effort(effort: str | None, efforts: Sequence[str], rules: OpenAIRules) -> Iterator[str]:
    if effort is None or effort in efforts:
        return
    problem = "this model has no effort"
    if efforts:
        problem = f"expected one of {', '.join(efforts)}"
    if effort in rules.efforts:
        problem += "; the Responses API has it"
    yield f"effort={effort!r}: {problem}"


def _refused_sampling(settings: ModelSettings, efforts: Sequence[str]) -> Iterator[str]:
    """Yield the settings of sampling, which a model refuses while it thinks."""
    advice = "this model does not take it"
    if "none" in efforts:
        advice = "set effort='none' too"
    for name in _SAMPLING:
        value = getattr(settings, name)
        if value is not None:
            yield f"{name}={value}: {advice}, as it thinks; {_ADVICE}"
    for name in _SAMPLING_EXTRA:
        if name in settings.extra:
            yield f"extra[{name!r}]: {advice}, as it thinks; leave it out"
