"""`ModelSettings`: parameters of a request besides the prompt; and the conversion to request bodies."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, JsonValue, PlainValidator

from agentkit.errors import AgentDefinitionError, UnknownOption, named_problems
from agentkit.models.secret_values import secrets_in, without_secrets
from agentkit_prompts.context.frozen import FrozenDict, freeze
from agentkit_prompts.errors import ContextError, brief
from agentkit_prompts.limits import MAX_COUNT
from agentkit_prompts.options import Count, CountOrZero, Text, options

if TYPE_CHECKING:
    from agentkit.models.model import Model

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_OTHER_NAMES = {
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "effort",
}
"""Names of settings in other libraries."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_FRAMING = ("content-length", "transfer-encoding")
"""Headers of the length of a body, which only the client knows."""
_REQUEST_FIELDS = frozenset(("headers", "timeout", "extra"))
"""Fields that no table of an endpoint lists, because they are not part of the body or every endpoint has them."""
_MAX_BITS = 1_000
"""Maximum bits of a whole number: JSON parsers that read numbers as floats cannot represent more."""
_MODEL_KEYS = ("model", "messages", "input", "prompt", "system", "instructions", "tools", "stream")


_NonNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _checked_stop(stop: object) -> object:
    if stop is None or (isinstance(stop, str) and stop):
        return stop
    if not isinstance(stop, list | tuple) or not stop or not all(isinstance(text, str) and text for text in stop):
        raise ValueError(f"expected a text, or a list of texts that are not empty, got {brief(stop, 60)}")
    return tuple(stop)


def _checked_headers(headers: object) -> FrozenDict:
    """Return read-only headers. No error message contains a value or an invalid name, because it may be a key."""
    if not isinstance(headers, Mapping):
        raise ValueError(f"expected a mapping of names to texts, got {type(headers).__name__}")
    problems: list[tuple[str, str]] = []
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            problems.append(("", "a name is invalid in HTTP; the name is not shown, because it may be a key"))
        elif not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            problem = "expected text of printable ASCII characters on one line, without spaces at its start and end"
            problems.append((f"[{name!r}]", problem))
        elif name.lower() in _FRAMING:
            problems.append((f"[{name!r}]", "the client writes this header itself: remove it"))
    if problems:
        raise ContextError("headers", problems)
    return FrozenDict(headers)


def _checked_extra(extra: object) -> Mapping[str, Any]:
    """Return read-only fields for the body of a request."""
    if not isinstance(extra, Mapping):
        raise ValueError(f"expected a mapping, got {type(extra).__name__}")
    body: Mapping[str, Any] = freeze(extra, json_only=True)
    problems = [
        (f"[{name!r}]", "the model writes this field itself: remove it") for name in _MODEL_KEYS if name in body
    ]
    problems += [(place, f"{brief(value)} is not JSON") for place, value in _invalid_numbers(body, "")]
    if problems:
        raise ContextError("extra", problems)
    return body


def _invalid_numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yield the place and value of each number that JSON cannot represent."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _invalid_numbers(item, f"{place}[{brief(key)}]")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _invalid_numbers(item, f"{place}[{position}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield place, value
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        yield place, value


@options(AgentDefinitionError, unknown=UnknownOption, elsewhere=_OTHER_NAMES, kw_only=True)
class ModelSettings:
    """Parameters of a request besides the prompt. None leaves a parameter to the endpoint.

    A model has settings, and so may one run (`settings=` of `run`, `stream`, `resume` and `override`): a field of the
    run replaces the field of the model. A setting that the model does not support is an error when the model, or the
    run, is created.

    Secrets are not shown and are removed from errors. Settings that contain secrets cannot be pickled (TypeError).

    Raises:
        AgentDefinitionError: Names every invalid value.
    """

    temperature: _NonNegative | None = None
    """Randomness of the reply, 0 or more."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Sample only from the likeliest tokens with this total probability, above 0 and at most 1."""
    top_k: Count | None = None
    """Sample only from this number of likeliest tokens, 1 or more."""
    max_tokens: Count | None = None
    """Maximum tokens of the reply, 1 or more; with the tokens of its thinking if the endpoint counts them."""
    stop: Annotated[str | Sequence[str] | None, PlainValidator(_checked_stop)] = None
    """Texts that end the reply."""
    seed: Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | None = None
    """Seed of sampling: equal requests get equal replies, as far as the endpoint supports it."""
    effort: Effort | None = None
    """Effort of reasoning."""
    thinking_tokens: CountOrZero | None = None
    """Maximum tokens of thinking, 0 or more."""
    tool_choice: Text | None = None
    """`auto`, `none`, `required`, or the name of the only tool to call. `required` and a name apply until the run has
    called a tool: a model that had to call a tool at every step would never finish."""
    parallel_tool_calls: bool | None = None
    """True if a reply may contain several tool calls."""
    headers: Annotated[Mapping[str, str], PlainValidator(_checked_headers)] = field(
        default_factory=FrozenDict, hash=False
    )
    """HTTP headers of each request. Their values are secrets."""
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum seconds to wait for a connection, a whole reply, or the next piece of a stream; 600 by default."""
    prompt_cache_key: Text | None = None
    """Key of the prompt cache, shared by requests with the same prefix."""
    compact_above: Count | None = None
    """Input tokens above which the provider shortens the conversation itself: the Responses API compacts it, Anthropic
    clears old tool results."""
    service_tier: Text | None = None
    """Service tier, as the endpoint names it: its speed and price."""
    extra: Annotated[Mapping[str, JsonValue], PlainValidator(_checked_extra)] = field(
        default_factory=FrozenDict, hash=False
    )
    """Fields that are merged into the body of the request last, objects key by key; None removes a key. A value is a
    secret if its name is similar to `api_key`, `token`, `password` or `authorization`, at any depth, or if it is a
    text that looks like a key: `sk-...`, `Bearer ...`, 16 or more random letters and digits, or an address with a
    password, a query or a fragment."""

    def merged(self, other: ModelSettings) -> ModelSettings:
        """Return a copy with the fields that `other` sets; headers and `extra` are merged key by key."""
        checked_settings(other)
        changes = {name: value for name, value in explicit_settings(other).items() if name not in ("headers", "extra")}
        # Names of headers are compared without case; the last spelling is sent.
        headers = {name.lower(): (name, value) for name, value in (*self.headers.items(), *other.headers.items())}
        extra = merged_body(self.extra, other.extra, keep_none=True)
        return replace(self, **changes, headers=FrozenDict(headers.values()), extra=extra)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values of headers and secret values of `extra`, which must not be shown."""
        return tuple([value.strip() for value in self.headers.values()] + secrets_in(self.extra))

    def __reduce__(self) -> Any:
        if self.secrets:
            raise TypeError(
                f"{self!r} cannot be pickled, because it contains headers or a secret in extra: create the settings "
                "in the other process, where the secret is read"
            )
        return partial(type(self), **explicit_settings(self)), ()

    def __copy__(self) -> ModelSettings:
        return self

    def __deepcopy__(self, memo: object) -> ModelSettings:
        return self

    def __repr__(self) -> str:
        values = explicit_settings(self)
        if self.headers:
            values["headers"] = [*self.headers]
        if self.extra:
            values["extra"] = without_secrets(self.extra)
        return f"ModelSettings({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def explicit_settings(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields that are set, by name."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: value for name, value in values.items() if value is not None and value != {}}


Fields: TypeAlias = Mapping[str, str | Callable[[Any], Mapping[str, Any]]]
"""Conversion of settings to a request body: a field name, and the key in the body or a function that returns a part of
the body. The function raises `ValueError` for a value that the endpoint does not accept."""

NO_SETTINGS = ModelSettings()


def checked_settings(settings: object, where: str = "settings") -> ModelSettings:
    """Return the argument `settings` of a model, an agent or a run; a mapping contains the fields by name.

    Raises:
        AgentDefinitionError: The argument is not `ModelSettings`.
        UnknownOption: A name in the mapping is unknown.
    """
    if isinstance(settings, ModelSettings):
        return settings
    if isinstance(settings, Mapping) and all(isinstance(name, str) for name in settings):
        return ModelSettings(**settings)
    raise AgentDefinitionError(
        f"{where}: expected ModelSettings, such as ModelSettings(temperature=0), got {type(settings).__name__}",
        name="settings",
        value=type(settings).__name__,
    )


def settings_body(settings: ModelSettings, table: Fields, model: str, problems: Iterable[str] = ()) -> dict[str, Any]:
    """Return the part of the request body that the settings determine, without `extra`.

    Args:
        settings: The settings.
        table: Conversion of the fields that the endpoint supports.
        model: Name of the model, for errors.
        problems: Problems of the settings that the model has found itself.

    Raises:
        AgentDefinitionError: Names every field that the table does not contain, every value that the endpoint does not
            accept, and `problems`.
    """
    body: dict[str, Any] = {}
    all_problems: list[str] = []
    for name, value in explicit_settings(settings).items():
        if name in _REQUEST_FIELDS:
            continue
        try:
            body = merged_body(body, _field_body(table, name, value))
        except ValueError as error:
            all_problems.append(str(error))
    all_problems += problems
    if all_problems:
        text = "; ".join(all_problems)
        raise AgentDefinitionError(f"model {model!r}: settings: {text}", **named_problems(all_problems))
    return body


def _field_body(table: Fields, name: str, value: object) -> Mapping[str, Any]:
    """Return the part of the request body that one setting determines.

    Raises:
        ValueError: The endpoint does not support the setting or does not accept the value.
    """
    conversion = table.get(name)
    if conversion is None:
        raise ValueError(f"{name}: the endpoint has no such setting; remove it, or send another field in extra={{...}}")
    if isinstance(conversion, str):
        return {conversion: value}
    try:
        return conversion(value)
    except ValueError as error:
        raise ValueError(f"{name}={value!r:.40}: {error}") from error


def set_per_request(value: object) -> Mapping[str, Any]:
    """Return an empty body: the value of the field depends on the tools of each request."""
    return {}


def with_settings(model: Model, settings: object) -> Model:
    """Return a copy of a model in which the settings replace the settings of the model, field by field.

    Raises:
        AgentDefinitionError: The model does not support a setting, or does not support settings.
    """
    new_settings = checked_settings(settings)
    change: Callable[[ModelSettings], Model] | None = getattr(model, "with_settings", None)
    if change is None:
        raise AgentDefinitionError(
            f"settings: the model {model.name!r} ({type(model).__name__}) does not support settings: add a method "
            "with_settings(settings) to its class, which returns a copy with the settings",
            name="settings",
            value=type(model).__name__,
        )
    return change(new_settings)


def merged_body(body: Mapping[str, Any], changes: Mapping[str, Any], *, keep_none: bool = False) -> dict[str, Any]:
    """Return a body with the changes, objects merged key by key; None removes a key unless `keep_none` is true."""
    merged = dict(body)
    for key, value in changes.items():
        if value is None and not keep_none:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            inner = merged.get(key)
            if not isinstance(inner, Mapping):
                inner = {}
            merged[key] = merged_body(inner, value, keep_none=keep_none)
        else:
            merged[key] = value
    return merged
