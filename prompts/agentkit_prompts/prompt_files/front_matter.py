"""Front matter: the settings of a prompt file, in YAML between two lines of three dashes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from agentkit_prompts.errors import TemplateError, brief
from agentkit_prompts.invalid_values import InvalidValue, invalid_values
from agentkit_prompts.prompt_files.front_matter_text import Fault, FrontKeys, errors_of, read_keys, split_front_matter
from agentkit_prompts.prompt_files.prompt_kinds import PromptKind
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.prompt import Volatility

_LOCALE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
"""Pattern of a language tag, such as `en` or `zh-CN`."""


def _locale(value: str) -> str:
    if not _LOCALE.fullmatch(value):
        raise PydanticCustomError("locale", "expected a language tag such as en or zh-CN")
    return value.replace("_", "-")


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Strict(BaseModel):
    """Model that rejects unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


_Tokens = Annotated[int, Field(ge=0)]


class _Budget(_Strict):
    min: _Tokens = 0
    target: _Tokens | None = None
    max: _Tokens | None = None
    priority: int = 0
    cut: Literal["none", "drop", "head", "tail", "middle", "items"] = "none"
    flex: float = Field(default=1.0, ge=0)


class FrontMatter(_Strict):
    """Keys of a prompt file, see `PromptFolder`; a missing key has its default value."""

    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    role: Literal[Place, "none"] = "system"
    kind: PromptKind = "text"
    budget: _Budget = _Budget()
    volatility: Volatility | None = None
    fence: bool = False
    locale: Annotated[str, AfterValidator(_locale)] | None = None
    version: _Text | None = None
    name: _Text | None = None
    order: float = 0
    engine: Literal["jinja", "fstring"] = "jinja"

    def keys_in_file(self) -> dict[str, Any]:
        """Return the keys and values that the file sets, with the spelling of the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


_WORDS = {
    "dict_type": "a JSON Schema object",
    "extra_forbidden": "unknown key",
    "invalid-json-value": "a JSON value",
    "model_type": "keys such as `max: 500`",
    "string_too_short": "text that is not empty",
}
"""Expected values of front matter."""


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Content of a prompt file: its front matter, and the body after it."""

    file: str
    """Name of the file in errors."""
    name: str
    """Name of the prompt."""
    locale: str | None
    """Language tag of the body; None for the fallback of all locales."""
    has_locale_in_name: bool
    """True if the name of the file contains the locale."""
    body: str
    first_line: int
    """Line of the file at which the body starts, counted from 1."""
    front: FrontMatter
    lines: Mapping[str, int]
    """Lines of the file, counted from 1, by the keys of the front matter."""


class _FileName(NamedTuple):
    """Name of a file, split into the name of the prompt and the locale."""

    prompt: str
    locale: str | None


def _file_name(name: str) -> _FileName:
    stem, _, suffix = name.rpartition(".")
    if stem and not stem.endswith("/") and _LOCALE.fullmatch(suffix):
        return _FileName(stem, suffix.replace("_", "-"))
    return _FileName(name, None)


def read_source(file: str, name: str, text: str, problems: list[TemplateError]) -> PromptSource | None:
    """Split the text of a file into front matter and body; return None if the front matter is invalid.

    Args:
        file: Name of the file in errors.
        name: Path of the file in its folder, without the suffix; `greeting.zh` is the prompt `greeting` in the locale
            `zh`.
        text: Text of the file.
        problems: List to which the errors of the front matter are added.
    """
    prompt, locale = _file_name(name)
    has_locale = locale is not None
    faults: list[Fault] = []
    parts = split_front_matter(text, faults)
    if parts is None:
        problems += errors_of(file, faults)
        if faults:
            return None
        return PromptSource(file, prompt, locale, has_locale, text, 1, FrontMatter(), {})
    keys = read_keys(parts.front, faults)
    front = _validated(keys, locale, faults)
    if faults:
        problems += errors_of(file, faults)
        return None
    return PromptSource(
        file=file,
        name=front.name or prompt,
        locale=front.locale or locale,
        has_locale_in_name=has_locale,
        body=parts.body,
        first_line=parts.first_line,
        front=front,
        lines=keys.lines,
    )


def _validated(keys: FrontKeys, locale: str | None, faults: list[Fault]) -> FrontMatter:
    """Return the front matter of the keys, and add its faults; `locale` is the locale in the file name."""
    front = FrontMatter()
    try:
        front = FrontMatter.model_validate(keys.values)
    except ValidationError as error:
        problems = invalid_values(error, keys.values, FrontMatter, _WORDS)
        faults += [_fault(problem, keys.lines) for problem in problems]
    if locale is not None and front.locale not in (None, locale):
        reason = f"the locale is {front.locale!r} here and {locale!r} in the file name"
        faults.append(Fault(keys.lines["locale"], "locale", reason))
    return front


def _fault(problem: InvalidValue, lines: Mapping[str, int]) -> Fault:
    """Return the fault for an invalid value of the front matter."""
    text = problem.message(brief)
    if not problem.path:
        return Fault(1, None, text)
    return Fault(lines[str(problem.path[0])], problem.place, f"{problem.place}: {text}")
