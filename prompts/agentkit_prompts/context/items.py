"""Items of a context: documents, facts, recalled messages, examples and tool specs."""

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
from agentkit_prompts.context.frozen import DerivedCache, DerivedSlot, FrozenDict
from agentkit_prompts.context.heading_path import heading_above
from agentkit_prompts.context.json_form import Data
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.errors import ContextError
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.names import reject_unknown_fields

__all__ = [
    "ContextItem",
    "Document",
    "Example",
    "Fact",
    "RecalledMessage",
    "Selection",
    "Speaker",
    "ToolSpec",
    "Trust",
    "field_error",
    "hash_of",
    "short_form",
    "with_unique_labels",
]

JsonData: TypeAlias = Data
"""Read-only data that is valid JSON."""

_NO_LABEL = re.compile(r"[\[\]]+")
_SHORT_ID = re.compile(r"[A-Za-z0-9_.-]{1,16}")


class ContextItem:
    """Base of context items; a new object checks all its fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        check_fields(self)


def field_error(message: str) -> ContextError:
    """Return the error of an unknown field."""
    subject, _, problem = message.partition(": ")
    return ContextError(subject, [("", problem)])


def short_form(name: str, *kinds: type, **aliases: str) -> Any:
    """Return a pydantic validator that reads a value of one of `kinds` as the value of the field `name`.

    `aliases` maps other accepted names of fields to the fields.
    """

    def full(_: type, value: Any) -> Any:
        if isinstance(value, kinds):
            return {name: value}
        if not isinstance(value, Mapping):
            return value
        return _without_aliases(value, aliases)

    wrapped: Any = classmethod(full)
    return model_validator(mode="before")(wrapped)


def _without_aliases(values: Mapping[Any, Any], aliases: Mapping[str, str]) -> dict[Any, Any]:
    """Return the values by the names of fields. An alias next to its field stays, so that it is rejected as unknown."""
    data = dict(values)
    for alias, name in aliases.items():
        if alias in data and name not in data:
            data[name] = data.pop(alias)
    return data


@reject_unknown_fields(field_error)
@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Document(ContextItem, DerivedSlot):
    """A chunk of a source, recalled for this turn.

    `score` is the score of the recall (higher is better), `source` the file or address of the text, `position` the
    index of the chunk in its source. Text is untrusted by default; see `trust`. A budget never cuts inside an `atomic`
    document.

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
    """Image that `text` describes; `MemoPrompt` shows it below the text."""
    label: Label = ""
    """Name in prompts and answers, `SOURCE#CHUNK`: `source` (else `title`, else `id`), and `position` (else a short
    `id`, else a hash). It is equal in every turn and process. In templates, a hash is appended to labels that are not
    unique."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.label:
            object.__setattr__(self, "label", _label(self))

    @property
    def heading(self) -> str:
        """The title without the headings with which `text` starts, so that title and text repeat no words."""
        # A template reads the heading twice: to test if it is empty, and to print it.
        try:
            heading: str = self._derived
        except AttributeError:
            heading = heading_above(self.title, self.text)
            object.__setattr__(self, "_derived", heading)
        return heading


@reject_unknown_fields(field_error)
@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Fact(ContextItem):
    """One statement, with its source. Raises like `Document`."""

    __repr__ = short_repr

    _full = short_form("text", str)

    text: str
    id: str = ""
    source: str = ""
    score: float | None = None
    metadata: Data = field(default_factory=FrozenDict, hash=False)
    trust: Trust = "untrusted"


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class RecalledMessage(ContextItem):
    """A message of an earlier conversation, recalled for this turn.

    `role` is `user` or `assistant`, `name` the name of the author, `when` the time of the message, `session` the id of
    the conversation, `position` the index of the message in that conversation. Raises like `Document`.
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
class Example(ContextItem):
    """A worked example: an input and its expected output. Trusted, because the developer writes it.

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
        """Return the example with the score of a selector."""
        return replace(self, score=score)


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class Selection(ContextItem, DerivedSlot):
    """Examples selected for one prompt and input.

    `prompt` is the path of the prompt in its layers, `query` the text of the input, `pool` a hash of the available
    examples.
    """

    __repr__ = short_repr

    prompt: str
    query: str
    pool: str
    chosen: tuple[Example, ...]

    def bound_to(self, prompt: object, pool: tuple[Example, ...]) -> Selection:
        """Bind the selection to a prompt object and its pool, and return it; copies and stored forms are not bound.

        A bound selection is valid for this object only, and its pool is compared by identity, which is faster.
        """
        if not hasattr(self, "_derived"):
            object.__setattr__(self, "_derived", (prompt, pool))
        return self

    def is_valid_for(self, path: str | None, prompt: object, query: str, pool: tuple[Example, ...]) -> bool:
        """True if this selection is valid for the prompt at `path`, for this query and pool."""
        if self.query != query:
            return False
        bound = getattr(self, "_derived", None)
        if bound is None:
            return self.prompt == path and self.pool == hash_of(pool)
        bound_prompt, bound_pool = bound
        return bound_prompt is prompt and (bound_pool is pool or self.pool == hash_of(pool))


def hash_of(pool: tuple[Example, ...]) -> str:
    """Return a hash of the examples available to a selector."""
    # Without scores and metadata, which do not change the selection.
    content = repr([(example.input, example.output, example.id) for example in pool])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _label(document: Document) -> str:
    """Return the label of a document. The label is stable, because it depends on no other document."""
    name = _label_name(document.source or document.title or document.id or "document")
    if document.position is not None:
        return f"{name}#{document.position}"
    # An id that equals the name adds no information.
    if name != document.id and _SHORT_ID.fullmatch(document.id) is not None:
        return f"{name}#{document.id}"
    return f"{name}#{_short_hash(document.id, document.text)}"


def _label_name(name: str) -> str:
    """Return the last characters of a name; `_` replaces characters that a label cannot contain."""
    name = name[-MAX_SHOWN_CHARS:]
    if not name.isprintable():
        name = "".join([char if char.isprintable() else "_" for char in name])
    # Brackets would end the label in a citation.
    return _NO_LABEL.sub("_", name)


def _short_hash(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()


def with_unique_labels(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return the documents with a hash added to labels that are not unique.

    The hash depends on the document alone, so that the labels do not depend on the order of the documents.
    """
    times = Counter([document.label for document in documents])
    unique = {label for label, count in times.items() if count == 1}
    copies: Counter[str] = Counter()
    labelled: list[Document] = []
    for document in documents:
        if times[document.label] > 1:
            content = _short_hash(document.source, document.title, document.id, document.text)
            name = label = f"{document.label}.{content}"
            # The list contains the same document several times.
            while label in unique:
                copies[name] += 1
                label = f"{name}.{copies[name] + 1}"
            unique.add(label)
            document = replace(document, label=label)
        labelled.append(document)
    return tuple(labelled)


def _any_object() -> FrozenDict:
    return FrozenDict(type="object", properties=FrozenDict())


class _WithJson(DerivedCache):
    """Base of `ToolSpec` with a slot, which a dataclass with slots cannot declare without a field."""

    __slots__ = ("json",)

    json: str
    """The spec as one line of canonical JSON, created at the first use."""


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class ToolSpec(ContextItem, _WithJson):
    """Description of a tool for a model: name, description, and parameters as a JSON Schema object.

    By default a spec is trusted, because the developer wrote it. Set `trust` for a spec from a server.

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
    """Entry in the request for a tool that runs at the provider, such as `{"type": "web_search"}`; sent unchanged.
    None for other tools."""
    timeout: float | None = field(default=None, kw_only=True, compare=False)
    """Time limit of a call in seconds, `inf` for no limit, None if unknown. Shown in the layer table, not sent."""

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
