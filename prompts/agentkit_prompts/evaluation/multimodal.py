"""`MMPromptTemplate`: prompt of content parts for a row with text, images, videos and audio.

See the AISBench document about multimodal prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, brief
from agentkit_prompts.evaluation.columns import safe_format
from agentkit_prompts.evaluation.problems import inside, unknown_names, wrong_type
from agentkit_prompts.evaluation.prompt_template import PromptTemplate, Shown
from agentkit_prompts.evaluation.row_template import located, problems_of

KINDS = {"text": "question", "image": "image", "video": "video", "audio": "audio"}
"""Mapping from a kind of content to the placeholder in a part of that kind."""

_STARTS = {f"<AIS_{kind.upper()}_START>": kind for kind in KINDS}
"""Mapping from a tag to the kind of the content that follows it."""

_END = "<AIS_CONTENT_TAG>"
"""Tag at the end of each piece of content."""

_TAG = re.compile("|".join(map(re.escape, (*_STARTS, _END))))

_TWO_SCHEMES = re.compile(r"(?:file://|data:[^,]{0,80};base64,)(?:file|https?|data):")
"""An address in a place for a path (after `file://`) or for base64 data."""

_CONTENT = ("content", "question")
"""Columns that can contain the tagged content; the first existing column is used."""


class MMPromptTemplate(PromptTemplate):
    """A dialogue whose items have `prompt_mm`, which has a content part for each kind of content (AISBench document).

    The column `content` of a row, or `question` if it does not exist, contains pieces between tags, such as
    `<AIS_IMAGE_START>...<AIS_CONTENT_TAG>`. Each piece becomes one part, in order. The part is a copy of the part for
    the kind of the piece, with these replacements: `{question}` by the text; `{image}`, `{video}` or `{audio}` by the
    address or base64 data; any other `{column}` by the value in the row. Content without tags is text. The `prompt` of
    an item is filled as in every template.

    Args:
        template: `begin`, `round` and `end`, of texts and role items.
        ice_token: Place of worked examples.

    Raises:
        InContextError: The template has another form, or `prompt_mm` contains an unknown kind of content; the error
            lists all problems.
    """

    def __init__(self, template: Mapping[str, Any], ice_token: str | None = None) -> None:
        super().__init__(template, ice_token)
        items = [item for _, item in located(template) if isinstance(item, Mapping)]
        self._kinds = frozenset(kind for item in items for kind in item.get("prompt_mm", ()))

    def _render(self, label: Any, form: str, row: Mapping[str, Any], ice: Shown) -> Shown:
        content = self._content(row)
        prompt = super()._render(label, form, row, ice)
        for item in prompt:
            # The `prompt_mm` of a worked example is a list, because its parts are already filled.
            if isinstance(item, dict) and isinstance(item.get("prompt_mm"), Mapping):
                item["prompt_mm"] = _parts(item["prompt_mm"], content, row)
        return prompt

    def _content(self, row: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
        """Return (kind, text or address) of each piece of the content of a row."""
        if not self._kinds:
            return ()
        name, tagged = _tagged_text(row)
        content = read_tags(tagged)
        unused = [kind for kind in dict(content) if kind not in self._kinds]
        if unused:
            raise InContextError(
                f"MMPromptTemplate: column {name!r} contains {', '.join(unused)}, which no prompt_mm of the "
                f"template has; add it to {', '.join(sorted(self._kinds))}",
                name=name,
                problems=[(kind, f"prompt_mm has no {kind!r}") for kind in unused],
            )
        return content

    def _problems(self, template: object, ice_token: str) -> Problems:
        problems = problems_of(template)
        for place, item in located(template):
            if isinstance(item, Mapping):
                problems += inside(f"{place}.prompt_mm", _problems_of_parts(item.get("prompt_mm", {})))
        return problems


def _tagged_text(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the text of the column that contains the content of a row."""
    name = next((name for name in _CONTENT if name in row), None)
    if name is None:
        raise InContextError(
            f"MMPromptTemplate: the row has no column {' or '.join(map(repr, _CONTENT))}, with the text and media; "
            f"columns: {', '.join(map(str, row)) or 'none'}",
            name="content",
        )
    text = row[name]
    if not isinstance(text, str):
        kind = type(text).__name__
        raise InContextError(
            f"MMPromptTemplate: column {name!r} must contain text with tags, got {kind}", name=name, value=kind
        )
    return name, text


def _problems_of_parts(parts: object) -> Problems:
    if not isinstance(parts, Mapping):
        return wrong_type("", parts, Mapping, "a dict of kinds of content to parts")
    problems = unknown_names("", parts, KINDS, "unknown kind of content")
    for kind, example in _EXAMPLES.items():
        part = parts.get(kind, example)
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            problems.append(Problem(kind, f"must be a part such as {example}, got {brief(part)}"))
        elif part["type"] not in part:
            problems.append(Problem(kind, f"is of type {part['type']!r} and has no key of that name"))
    return problems


def _parts(parts: Mapping[str, Any], content: Sequence[tuple[str, str]], row: Mapping[str, Any]) -> list[Any]:
    """Return a part for each piece of the content; warn of addresses that the template makes invalid."""
    filled = [_fill(parts[kind], {**row, KINDS[kind]: piece}) for kind, piece in content if kind in parts]
    if any(map(_has_two_schemes, filled)):
        text = "MMPromptTemplate: an address has two schemes; remove the scheme in the template"
        warn(InContextWarning(text, name="prompt_mm"))
    return filled


def read_tags(content: str) -> list[tuple[str, str]]:
    """Return (kind, text or address) of each piece, in order.

    A piece starts at its tag and ends at the end tag, at the tag of another kind, or at the end of the content. Text
    outside of tags is also a piece, except white space. Content without tags is one piece of text.
    """
    if not _TAG.search(content):
        return [("text", content)]
    pieces: list[tuple[str, str]] = []
    kind, start, text = "", 0, ""
    for tag in _TAG.finditer(content):
        text += content[start : tag.start()]
        start = tag.end()
        next_kind = _STARTS.get(tag[0], "")
        # A repeated tag of the same kind is ignored, as in AISBench.
        if not kind or next_kind != kind:
            pieces.append((kind, text))
            kind, text = next_kind, ""
    pieces.append((kind, text + content[start:]))
    return [(kind or "text", text) for kind, text in pieces if kind or text.strip()]


def _has_two_schemes(part: Mapping[str, Any]) -> bool:
    address = part[part["type"]]
    if isinstance(address, Mapping):
        address = address.get("url")
    return isinstance(address, str) and _TWO_SCHEMES.match(address) is not None


def _fill(part: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a content part with the columns filled in all of its texts."""
    if isinstance(part, str):
        return safe_format(part, values)
    if isinstance(part, Mapping):
        return {key: _fill(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_fill(value, values) for value in part]
    return part


_EXAMPLES = {
    "text": {"type": "text", "text": "{question}"},
    **{kind: {"type": f"{kind}_url", f"{kind}_url": {"url": f"{{{kind}}}"}} for kind in KINDS if kind != "text"},
}
