"""`ModelSettings`: how a model is to answer, beside the prompt; and the tables by which adapters write it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, JsonValue, PlainValidator

from agentkit.errors import AgentDefinitionError, UnknownOption, named_problems
from agentkit.models.secret_values import secrets_in, without_secrets
from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.errors import ContextError, brief
from agentkit_prompts.limits import MAX_COUNT
from agentkit_prompts.names import nearest
from agentkit_prompts.options import Count, CountOrZero, Text, options

if TYPE_CHECKING:
    from agentkit.models.model import Model

__all__ = [
    "NO_SETTINGS",
    "Fields",
    "ModelSettings",
    "checked_settings",
    "explicit_settings",
    "merged_body",
    "set_per_request",
    "settings_body",
    "with_settings",
]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_OTHER_NAMES = {
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "effort",
}
"""Names of settings in other libraries."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REQUEST_FIELDS = frozenset(("headers", "timeout", "extra"))
"""Fields that no table lists: every endpoint has them."""
_MAX_BITS = 1_000
"""Of a whole number: what is larger is a number to no reader of JSON that knows floats only."""
_MODEL_KEYS = ("model", "messages", "input", "prompt", "system", "instructions", "tools", "stream")


_NonNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _stop(stop: object) -> object:
    if stop is None:
        return None
    texts = stop
    if isinstance(stop, str):
        texts = [stop]
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"expected a text, or a list of texts that are not empty, got {brief(stop, 60)}")
    if isinstance(stop, str):
        return stop
    return tuple(texts)


def _headers(headers: object) -> FrozenDict:
    """Return headers, read-only. No message contains a value, or an invalid name, because it may be a key."""
    if not isinstance(headers, Mapping):
        raise ValueError(f"expected a mapping of names to texts, got {type(headers).__name__}")
    problems: list[tuple[str, str]] = []
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            problems.append(("", "a name is invalid in HTTP; it is not shown, because it may be a key"))
        elif not isinstance(value, str) or not all(" " <= char <= "~" for char in value):
            problems.append((f"[{name!r}]", "expected text of printable ASCII characters on one line"))
    if problems:
        raise ContextError("headers", problems)
    return FrozenDict(headers)


def _extra(extra: object) -> Mapping[str, Any]:
    """Return fields for the body of a request, read-only."""
    if not isinstance(extra, Mapping):
        raise ValueError(f"expected a mapping, got {type(extra).__name__}")
    fields: Mapping[str, Any] = freeze(extra, json_only=True)
    problems = [
        (f"[{name!r}]", "is written by the model itself, and would be replaced")
        for name in _MODEL_KEYS
        if name in fields
    ]
    problems += [(place, f"{brief(value)} is not JSON") for place, value in _invalid_numbers(fields, "")]
    if problems:
        raise ContextError("extra", problems)
    return fields


def _invalid_numbers(value: Any, place: str) -> list[tuple[str, float]]:
    if isinstance(value, float):
        if math.isfinite(value):
            return []
        return [(place, value)]
    if isinstance(value, int):
        if value.bit_length() <= _MAX_BITS:
            return []
        return [(place, value)]
    if isinstance(value, Mapping):
        return [one for key, item in value.items() for one in _invalid_numbers(item, f"{place}[{brief(key)}]")]
    if isinstance(value, list):
        return [one for at, item in enumerate(value) for one in _invalid_numbers(item, f"{place}[{at}]")]
    return []


@options(AgentDefinitionError, unknown=UnknownOption, elsewhere=_OTHER_NAMES, kw_only=True)
class ModelSettings:
    """How a model is to answer. None leaves a thing to the endpoint.

    Given to a model, and to one run (`settings=` of `run`, `stream`, `resume` and `override`), whose fields then take
    the place of the model's. What the model cannot do is an error when the model, or the run, is made.

    Secrets are not shown, are taken out of errors, and are not pickled: settings with any raise TypeError then.

    Raises:
        AgentDefinitionError: Names every value that no model takes.
    """

    temperature: _NonNegative | None = None
    """0 or more: how much the reply varies."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Above 0 and at most 1: only the likeliest tokens that together have this probability."""
    top_k: Count | None = None
    """1 or more: only so many of the likeliest tokens."""
    max_tokens: Count | None = None
    """Tokens of the reply at most, 1 or more; what a model thinks counts where the endpoint counts it."""
    stop: Annotated[str | Sequence[str] | None, PlainValidator(_stop)] = None
    """Texts at which the reply ends."""
    seed: Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | None = None
    """The same reply for the same request, as far as the endpoint can."""
    effort: Effort | None = None
    """How hard the model thinks."""
    thinking_tokens: CountOrZero | None = None
    """Tokens the model may think, 0 or more."""
    tool_choice: Text | None = None
    """`auto`, `none`, `required`, or the name of the one tool to call. The last two hold until the run has called a
    tool: a model that had to call one at every step would never answer."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may call several tools."""
    headers: Annotated[Mapping[str, str], PlainValidator(_headers)] = field(default_factory=FrozenDict, hash=False)
    """HTTP headers to send. Their values are secrets."""
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds to wait for a connection, a whole reply, or the next piece of a streamed one; 600 when not given."""
    prompt_cache_key: Text | None = None
    """What requests with the same beginning share, so that they find the same cache."""
    service_tier: Text | None = None
    """The endpoint's name for how fast and at what price it answers."""
    extra: Annotated[Mapping[str, JsonValue], PlainValidator(_extra)] = field(default_factory=FrozenDict, hash=False)
    """Merged over the body of the request last, objects key by key; None takes a key out. What stands under a name such
    as `api_key`, `token`, `password` or `authorization`, at any depth, is a secret; and so is, under any name, a text
    that looks like a key: `sk-...`, `Bearer ...`, 16 or more letters and digits in no order, or an address with a
    password, a query or a fragment."""

    def merged(self, other: ModelSettings) -> ModelSettings:
        """Return these settings with those fields of `other` in their place that it has."""
        checked_settings(other)
        given = {name: value for name, value in explicit_settings(other).items() if name not in ("headers", "extra")}
        # Names of headers are compared without case; the last spelling is sent.
        headers = {name.lower(): (name, value) for name, value in (*self.headers.items(), *other.headers.items())}
        extra = merged_body(self.extra, other.extra, keep_none=True)
        return replace(self, **given, headers=FrozenDict(headers.values()), extra=extra)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: the values of headers, and what is secret in `extra`."""
        return tuple([value.strip() for value in self.headers.values()] + secrets_in(self.extra))

    def __reduce__(self) -> Any:
        if self.secrets:
            raise TypeError(
                f"{self!r} cannot be pickled, as it holds headers, or a secret in extra: make it again there, with "
                "what gives the secret"
            )
        return partial(type(self), **explicit_settings(self)), ()

    def __copy__(self) -> ModelSettings:
        return self

    def __deepcopy__(self, memo: object) -> ModelSettings:
        return self

    def __repr__(self) -> str:
        shown = {**explicit_settings(self), **({"headers": [*self.headers]} if self.headers else {})}
        if self.extra:
            shown["extra"] = without_secrets(self.extra)
        return f"ModelSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def explicit_settings(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields that are given, by name."""
    values = {one.name: getattr(settings, one.name) for one in fields(settings)}
    return {name: value for name, value in values.items() if value is not None and value != {}}


Fields: TypeAlias = Mapping[str, str | Callable[[Any], Mapping[str, Any]]]
"""How a wire form writes settings: the name of a field, and its key in the body or a function that returns what
stands in the body. The function raises `ValueError` for a value that the endpoint does not take."""

NO_SETTINGS = ModelSettings()


def checked_settings(settings: object, where: str = "settings") -> ModelSettings:
    """Return what a model or a run was given as its settings.

    Raises:
        AgentDefinitionError: It is something else.
    """
    if isinstance(settings, ModelSettings):
        return settings
    if isinstance(settings, Mapping):
        hint = "".join(nearest(str(name), [one.name for one in fields(ModelSettings)]) for name in settings)
        raise AgentDefinitionError(
            f"{where}: expected ModelSettings(...), got a mapping: write ModelSettings(**it){hint}",
            name="settings",
            value="mapping",
        )
    raise AgentDefinitionError(
        f"{where}: expected ModelSettings, such as ModelSettings(temperature=0), got {type(settings).__name__}",
        name="settings",
        value=type(settings).__name__,
    )


def settings_body(settings: ModelSettings, table: Fields, model: str, refused: Iterable[str] = ()) -> dict[str, Any]:
    """Return what settings put into the body of every request; `refused` is what the model does not take of them.

    Raises:
        AgentDefinitionError: Names every field that the table does not have, and every value the endpoint refuses.
    """
    body: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in explicit_settings(settings).items():
        # Headers and timeout are no part of a body, and `extra` is merged over it last.
        if name in _REQUEST_FIELDS:
            continue
        written = table.get(name)
        if written is None:
            wrong.append(f"{name}: it has no such setting; leave it out, or send what it does have with extra={{...}}")
            continue
        try:
            made = {written: value} if isinstance(written, str) else written(value)
        except ValueError as error:
            wrong.append(f"{name}={value!r:.40}: {error}")
            continue
        body = merged_body(body, made)
    wrong += refused
    if wrong:
        raise AgentDefinitionError(f"model {model!r}: settings: {'; '.join(wrong)}", **named_problems(wrong))
    return body


def set_per_request(value: object) -> Mapping[str, Any]:
    """Return nothing, in a table: what the field becomes depends on the tools of each request."""
    return {}


def with_settings(model: Model, settings: object) -> Model:
    """Return a model with these settings in the place of its own, field by field.

    Raises:
        AgentDefinitionError: The model cannot do one of them, or takes none.
    """
    given = checked_settings(settings)
    change: Callable[[ModelSettings], Model] | None = getattr(model, "with_settings", None)
    if change is None:
        raise AgentDefinitionError(
            f"settings: the model {model.name!r} ({type(model).__name__}) takes none: give its class a method "
            "with_settings(settings), which returns the model that has them",
            name="settings",
            value=type(model).__name__,
        )
    return change(given)


def merged_body(body: Mapping[str, Any], changes: Mapping[str, Any], *, keep_none: bool = False) -> dict[str, Any]:
    """Return a body with changes merged over it, objects key by key; None takes a key out, or is kept for later."""
    made = dict(body)
    for key, value in changes.items():
        if value is None and not keep_none:
            made.pop(key, None)
        elif isinstance(value, Mapping):
            before = made.get(key)
            made[key] = merged_body(before if isinstance(before, Mapping) else {}, value, keep_none=keep_none)
        else:
            made[key] = value
    return made
