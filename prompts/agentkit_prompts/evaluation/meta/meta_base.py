"""Base of both kinds of meta templates, and conversion of a prompt without a meta template."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.errors import InContextError, Problem, Problems, brief, error_of_problems, raise_problems
from agentkit_prompts.evaluation.meta.role_config import MetaFormat
from agentkit_prompts.evaluation.problems import wrong_type
from agentkit_prompts.evaluation.prompt_list import PromptList, is_marker
from agentkit_prompts.names import nearest

Mode: TypeAlias = Literal["gen", "ppl"]
"""`gen`: the prompt ends where the reply of the model starts. `ppl`: the whole prompt with its reply is scored."""

Prompt: TypeAlias = "str | PromptList | Sequence[str | PromptList | Mapping[str, Any] | Sequence[Any]]"
"""One prompt (text, `PromptList`, list of messages), or a list or tuple of prompts."""


class MetaParser(ABC):
    """Base of meta templates: the format of prompts for one model. `decode` converts token ids to text."""

    _meta: MetaFormat | None
    _decode: Callable[[Sequence[int]], str] | None

    @property
    def eos_token_id(self) -> int | str | tuple[int | str, ...] | None:
        """Token at the end of a reply, as configured."""
        if self._meta is None:
            return None
        return self._meta.eos_token_id

    def parse(self, prompt: Prompt, mode: Mode = "gen") -> Any:
        """Return a prompt as input of a model; for a list of prompts, return a list.

        Text is returned unchanged. In mode `gen` the result ends with the opening of the reply; in mode `ppl` it
        contains the reply.

        Raises:
            InContextError: The prompt is invalid or empty, roles are unknown, or a marker contains token ids and
                `decode` is None; names all problems.
        """
        check_mode(mode)
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, PromptList):
            return self._parsed(prompt, mode)
        if not isinstance(prompt, list | tuple):
            raise _no_prompt(prompt)
        # A list of messages is one prompt; any other list is a list of prompts.
        prompts: list[Any] = [*prompt]
        if prompts and all(map(_is_message, prompts)):
            return self._conversation(prompts, mode)
        return [self.parse(inner, mode) for inner in prompts]

    @abstractmethod
    def _parsed(self, prompt: PromptList, mode: Mode) -> Any: ...

    @abstractmethod
    def _conversation(self, messages: Sequence[Mapping[str, Any]], mode: Mode) -> Any:
        """Return a list of messages with roles and contents as input of a model."""

    def _text(self, flat: Sequence[str | int]) -> str:
        """Return texts and token ids as one text. Neighbouring ids are decoded together, because a character can
        consist of several tokens.
        """
        return "".join([run if isinstance(run, str) else self._decoded(run) for run in runs(flat)])

    def _decoded(self, ids: Sequence[int]) -> str:
        if self._decode is None:
            raise self._undecoded()
        return self._decode(ids)

    def _undecoded(self) -> InContextError:
        markers = ["a marker of the prompt"]
        if self._meta is not None and self._meta.ids:
            markers = self._meta.ids
        return InContextError(
            f"meta template: token ids in {', '.join(markers)} are not text; pass decode=tokenizer.decode, write text, "
            "or call pieces() of a MetaTemplate",
            problems=[(marker, "token ids are not text") for marker in markers],
        )


def _is_message(item: object) -> bool:
    return isinstance(item, Mapping) and "role" in item and "content" in item


def _no_prompt(prompt: object) -> InContextError:
    kind = type(prompt).__name__
    text = f"prompt: expected text, a PromptList or a list of prompts, got {kind}"
    if isinstance(prompt, Mapping):
        text += "; wrap role items as PromptList([...])"
    return InContextError(text, name="prompt", value=kind)


def check_mode(mode: str) -> None:
    """Reject an unknown mode."""
    if mode not in get_args(Mode):
        raise InContextError(
            f"mode: expected 'gen' or 'ppl', got {mode!r}{nearest(str(mode), get_args(Mode))}", name="mode"
        )


def runs(flat: Sequence[str | int]) -> Iterator[str | list[int]]:
    """Yield texts and lists of token ids: neighbouring texts are joined, and neighbouring ids are put into one list."""
    for is_text, run in groupby(flat, key=lambda piece: isinstance(piece, str)):
        if is_text:
            yield "".join(map(str, run))
        else:
            yield [int(piece) for piece in run]


def without_roles(items: PromptList) -> list[str | Mapping[str, Any]]:
    """Return a prompt list without a meta template: texts joined by line feeds, and content parts.

    The text of a role item is its `begin`, its prompt and its `end` (OpenCompass document). After an `end` with a line
    feed, no other line feed is added. Section markers are omitted, and the text after an empty item is on a new line.

    Raises:
        InContextError: An item is neither text nor dict, or its prompt is not text; lists all of them.
    """
    problems: Problems = []
    lines = [_line(position, item, problems) for position, item in enumerate(items) if not is_marker(item)]
    raise_problems(InContextError, "prompt", problems)
    return _join_lines(lines)


def _join_lines(lines: Sequence[_Line]) -> list[str | Mapping[str, Any]]:
    """Return the texts and the media of lines; texts without media between them are joined."""
    parts: list[str | Mapping[str, Any]] = []
    text, separator = "", ""
    for line in lines:
        if line.text:
            text += separator + line.text
            separator = line.separator
        elif not text:
            # An empty item ends a line, because the suites join all items by line feeds, including empty items.
            separator = "\n"
        if line.media:
            parts += [text, *line.media]
            text, separator = "", ""
    return [part for part in (*parts, text) if part]


class _Line(NamedTuple):
    """An item of a prompt list without a meta template."""

    text: str
    separator: str = "\n"
    """Text between this item and the next item."""
    media: Sequence[Mapping[str, Any]] = ()


def _line(position: int, item: object, problems: Problems) -> _Line:
    if isinstance(item, str):
        return _Line(item)
    if not isinstance(item, Mapping):
        problems += wrong_type(f"[{position}]", item, Mapping, "text or a dict with a role")
        return _Line("")
    text = "".join([_own_text(position, item, key, problems) for key in ("begin", "prompt", "end")])
    media = parts_of(position, item, problems)
    if _own_text(position, item, "end", []).endswith("\n"):
        return _Line(text, "", media)
    return _Line(text, media=media)


def _own_text(position: int, item: Mapping[str, Any], key: str, problems: Problems) -> str:
    """Return the text under a key of an item; `begin` and `end` can also be lists of texts."""
    value = item.get(key)
    if value is None:
        return ""
    if isinstance(value, str) or key == "prompt":
        value = [value]
    if isinstance(value, list | tuple) and all(isinstance(piece, str) for piece in value):
        return "".join(value)
    problems.append(Problem(f"[{position}].{key}", f"must be text, got {brief(value)}"))
    return ""


def parts_of(position: int, item: Mapping[str, Any], problems: Problems) -> Sequence[Mapping[str, Any]]:
    """Return the media of an item as content parts; empty without media, or with a problem if they are invalid."""
    media = item.get("prompt_mm")
    if not media:
        return ()
    if isinstance(media, list | tuple) and all(isinstance(part, Mapping) for part in media):
        return media
    text = f"must be a list of content parts, as returned by MMPromptTemplate; got {brief(media)}"
    problems.append(Problem(f"[{position}].prompt_mm", text))
    return ()


def media_text(part: object) -> str:
    """Return a content part as plain text: its text, or the alt text of media.

    Raises:
        InContextError: The value is not a content part of a known kind.
    """
    problems: Problems = []
    result = PartReader(problems, allow_media=True).part(part, "content part")
    if result is None:
        raise error_of_problems(InContextError, "", problems)
    if isinstance(result, Text):
        return result.text
    return result.alt
