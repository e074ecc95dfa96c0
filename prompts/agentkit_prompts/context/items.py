"""What a context holds beside messages: documents, facts, recalled messages, examples and tool specs."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

from pydantic import ConfigDict, model_validator

from agentkit_prompts.context.checked_fields import Label, Position, Speaker, Trust, check_fields
from agentkit_prompts.context.frozen import Derived, Deriving, FrozenDict
from agentkit_prompts.context.json_form import Data
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.limits import MAX_SHOWN_CHARS

__all__ = [
    "Document",
    "Example",
    "Fact",
    "RecalledMessage",
    "Selection",
    "Speaker",
    "ToolSpec",
    "Trust",
    "hash_of",
    "labelled_apart",
    "short_form",
]

JsonData: TypeAlias = Data
"""Data of which JSON can write all values."""

_NO_LABEL = re.compile(r"[\[\]]+")
_SHORT_ID = re.compile(r"[A-Za-z0-9_.-]{1,16}")


class _Item:
    """Base of context items: checks all fields of a new object."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        check_fields(self)


def short_form(name: str, *kinds: type, **aliases: str) -> Any:
    """Return a validator for pydantic: a value of one of `kinds` is read as an object with it as `name`.

    `aliases` are other names of fields.
    """

    def full(_: type, value: Any) -> Any:
        if isinstance(value, kinds):
            return {name: value}
        if not isinstance(value, Mapping):
            return value
        return _without_aliases(value, aliases)

    wrapped: Any = classmethod(full)
    return model_validator(mode="before")(wrapped)


def _without_aliases(given: Mapping[Any, Any], aliases: Mapping[str, str]) -> dict[Any, Any]:
    """Return fields under their names. If the name is given too, the alias stays, and is refused as unknown."""
    data = dict(given)
    for alias, name in aliases.items():
        if alias in data and name not in data:
            data[name] = data.pop(alias)
    return data


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Document(_Item):
    """A chunk of a source, recalled for this turn.

    `score` is the recall score (higher is better), `source` the file or address it came from, `position` its index
    among the chunks of that source. Text is untrusted unless `trust` says otherwise. An `atomic` document is never
    cut inside.

    Raises:
        ContextError: Fields have the wrong type; names all of them.
    """

    __repr__ = short_repr

    _full = short_form("text", str)

    text: str
    id: str = ""
    title: str = ""
    source: str = ""
    score: float | None = None
    position: Position = None
    metadata: Data = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"
    atomic: bool = False
    image: Image | None = None
    """What `text` is the alt text of; `MemoPrompt` shows it below."""
    label: Label = ""
    """How prompts and answers name it, `SOURCE#CHUNK`: made of `source` (else `title`, `id`) and `position` (else a
    short `id`, or a hash), so that it is the same in every turn and process. Templates see labels
    that are not unique with a hash added."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.label:
            object.__setattr__(self, "label", _label(self))


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Fact(_Item):
    """A piece of knowledge: one statement, with where it is from. Raises like `Document`."""

    __repr__ = short_repr

    _full = short_form("text", str)

    text: str
    id: str = ""
    source: str = ""
    score: float | None = None
    metadata: Data = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class RecalledMessage(_Item):
    """A message of an earlier conversation, recalled for this turn: what somebody wrote, who, and when.

    `role` is `user` or `assistant`, `name` what that one is called, `session` the conversation, `position` the number
    of the message there. Raises like `Document`.
    """

    __repr__ = short_repr

    text: str
    role: Speaker
    name: str = ""
    when: datetime | None = None
    session: str = ""
    id: str = ""
    score: float | None = None
    position: int | None = None
    metadata: Data = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Example(_Item):
    """A worked example: what goes in and what should come out. Written by the developer, so trusted.

    Raises like `Document`.
    """

    __repr__ = short_repr

    input: str
    output: str
    id: str = ""
    score: float | None = None
    metadata: Data = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "trusted"

    def scored(self, score: float) -> Example:
        """Return the example with the score a selector gave it."""
        return replace(self, score=score)


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Selection(_Item, Derived):
    """Examples that were chosen for one prompt and input.

    `prompt` is the path of the prompt in its layers, `query` the text of the input, `pool` a hash of the examples that
    could be chosen.
    """

    __repr__ = short_repr

    prompt: str
    query: str
    pool: str
    chosen: tuple[Example, ...]

    def bound(self, prompt: object, pool: tuple[Example, ...]) -> Selection:
        """Return the selection bound to this one object, until it is copied or stored."""
        if not hasattr(self, "_derived"):
            object.__setattr__(self, "_derived", (prompt, pool))
        return self

    def answers(self, path: str | None, prompt: object, query: str, pool: tuple[Example, ...]) -> bool:
        """True if this selection is valid for the prompt at `path`, for this query and pool."""
        if self.query != query:
            return False
        bound = getattr(self, "_derived", None)
        if bound is None:
            return self.prompt == path and self.pool == hash_of(pool)
        bound_prompt, bound_pool = bound
        return bound_prompt is prompt and (bound_pool is pool or self.pool == hash_of(pool))


def hash_of(pool: tuple[Example, ...]) -> str:
    """Return a hash of what a selector may choose from."""
    # Scores and metadata are left out: they do not change what a selector chooses.
    content = repr([(example.input, example.output, example.id) for example in pool])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _label(document: Document) -> str:
    """Return the label of a document. It depends on no other document, so that it is stable."""
    name = _label_name(document.source or document.title or document.id or "document")
    if document.position is not None:
        return f"{name}#{document.position}"
    # An id that is the name already says nothing more.
    if name != document.id and _SHORT_ID.fullmatch(document.id) is not None:
        return f"{name}#{document.id}"
    return f"{name}#{_short_hash(document.id, document.text)}"


def _label_name(name: str) -> str:
    """Return the end of a name, with `_` in place of characters that a label cannot have."""
    name = name[-MAX_SHOWN_CHARS:]
    if not name.isprintable():
        name = "".join([char if char.isprintable() else "_" for char in name])
    # Brackets would end the label in a citation.
    return _NO_LABEL.sub("_", name)


def _short_hash(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()


def labelled_apart(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return the documents with a hash added to labels that are not unique; the order does not matter."""
    times = Counter([document.label for document in documents])
    taken = {label for label, count in times.items() if count == 1}
    copies: Counter[str] = Counter()
    apart: list[Document] = []
    for document in documents:
        if times[document.label] > 1:
            content = _short_hash(document.source, document.title, document.id, document.text)
            name = label = f"{document.label}.{content}"
            # The same document is in the list twice.
            while label in taken:
                copies[name] += 1
                label = f"{name}.{copies[name] + 1}"
            taken.add(label)
            document = replace(document, label=label)
        apart.append(document)
    return tuple(apart)


def _any_object() -> FrozenDict:
    return FrozenDict(type="object", properties=FrozenDict())


class _WithJson(Deriving):
    __slots__ = ("json",)

    json: str
    """The spec as one line of canonical JSON; made at the first use."""


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class ToolSpec(_Item, _WithJson):
    """What a model is shown of a tool: name, description, and its parameters as a JSON Schema object.

    Written by the developer, so trusted; the specs that a server sends are untrusted, all of their text.

    Raises:
        ContextError: Fields have the wrong type, or the parameters are not JSON; names all of them.
    """

    __repr__ = short_repr

    name: str
    description: str = ""
    parameters: JsonData = field(default_factory=_any_object, hash=False)
    strict: bool = field(default=False, kw_only=True)
    trust: Trust = field(default="trusted", kw_only=True)
    native: JsonData | None = field(default=None, hash=False, kw_only=True)
    """The entry that a provider takes for a tool of its own, such as `{"type": "web_search"}`; sent as it is."""
    timeout: float | None = field(default=None, kw_only=True, compare=False)
    """Seconds that a call of it may take, `inf` for any; for the layer table, and not sent. None: not known."""

    def __post_init__(self) -> None:
        if self.parameters is None:
            object.__setattr__(self, "parameters", _any_object())
        check_fields(self)

    def __getattr__(self, name: str) -> str:
        if name != "json":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        spec = self.native
        if spec is None:
            spec = {"name": self.name, "description": self.description, "parameters": self.parameters}
        text = json.dumps(spec, ensure_ascii=False, separators=(", ", ": "))
        object.__setattr__(self, "json", text)
        return text
