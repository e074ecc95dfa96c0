"""`MMPromptTemplate`: a row whose content mixes text, images, videos and audio becomes a prompt of content parts.

The document: AISBench, multimodal prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from agentkit_prompts.errors import InContextError, nearest
from agentkit_prompts.evaluation.columns import safe_format
from agentkit_prompts.evaluation.media_tags import KINDS, read_tags
from agentkit_prompts.evaluation.meta.role_config import refuse
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, section
from agentkit_prompts.evaluation.row_template import SECTIONS, RowTemplate, items_of, problems_of

__all__ = ["MMPromptTemplate"]

_CONTENT = ("content", "question")
"""Columns that hold the tagged content: the first that a row has."""


class MMPromptTemplate(RowTemplate):
    """A dialogue whose items have `prompt_mm`: for each kind of content the part that is sent (AISBench document).

    A row's column `content`, else `question`, holds pieces between tags, `<AIS_IMAGE_START>...<AIS_CONTENT_TAG>`.
    Each piece becomes one part, in order: a copy of the item's part of that kind, in which `{question}` is the text,
    `{image}`, `{video}` or `{audio}` the address or the base64 data, and any other `{column}` the value of the row.
    Content without tags is text. An item's plain `prompt` is filled as in every template.

    Args:
        template: `begin`, `round` and `end`, of texts and role items.
        ice_token: Where worked examples go.

    Raises:
        InContextError: It is not like that, or `prompt_mm` has a kind of content that is unknown; names everything.
    """

    def __init__(self, template: Mapping[str, Any], ice_token: str | None = None) -> None:
        problems = _problems(template, ice_token)
        if problems:
            raise refuse("MMPromptTemplate", problems)
        self.template = deepcopy(dict(template))
        self.ice_token = ice_token or None
        self._kinds = frozenset(
            kind
            for name in SECTIONS
            for item in items_of(self.template.get(name))
            if isinstance(item, dict)
            for kind in item.get("prompt_mm", ())
        )

    def places(self, label: Any = None) -> str:
        texts = [item for name in SECTIONS for item in items_of(self.template.get(name)) if isinstance(item, str)]
        return "items" if self.ice_token and any(self.ice_token in text for text in texts) else ""

    def item(
        self, row: Mapping[str, Any], *, ice: str | PromptList = "", hide: str | None = None, instead: str = ""
    ) -> PromptList:
        """Return the prompt that asks for the answer of `row`.

        Raises:
            InContextError: The row has no tagged content, or content of a kind that no item takes; names everything.
        """
        items: list[Item] = []
        for name in SECTIONS:
            if name == "round" or self.template.get(name):
                items += section(name, self._filled(name, row if hide is None else {**row, hide: instead}, row))
        prompt = PromptList(items)
        return prompt.replace(self.ice_token, ice) if self.ice_token else prompt

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> PromptList:
        shown = PromptList(section("ice", self._filled("round", row, row)))
        return shown.replace(self.ice_token, "") if self.ice_token else shown

    def _filled(self, name: str, values: Mapping[str, Any], row: Mapping[str, Any]) -> PromptList:
        content = self._content(row)
        items = [item if isinstance(item, str) else deepcopy(dict(item)) for item in items_of(self.template.get(name))]
        found = PromptList(items).format(values)
        for item in found:
            if isinstance(item, dict) and "prompt_mm" in item:
                parts = item["prompt_mm"]
                item["prompt_mm"] = [
                    _fill(parts[kind], {**values, KINDS[kind]: piece}) for kind, piece in content if kind in parts
                ]
        return found

    def _content(self, row: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
        """Return (kind, text or address) of each piece of a row's content."""
        if not self._kinds:
            return ()
        name = next((name for name in _CONTENT if name in row), None)
        if name is None:
            raise InContextError(
                f"MMPromptTemplate: the row has neither {' nor '.join(map(repr, _CONTENT))}, one of which holds what "
                f"is shown; there is: {', '.join(map(str, row)) or 'no column'}"
            )
        if not isinstance(row[name], str):
            raise InContextError(
                f"MMPromptTemplate: column {name!r} must hold text with tags, got {type(row[name]).__name__}"
            )
        content = read_tags(row[name])
        unused = [kind for kind in dict(content) if kind not in self._kinds]
        if unused:
            raise InContextError(
                f"MMPromptTemplate: column {name!r} holds {', '.join(unused)}, which no prompt_mm of the template "
                f"takes; add it beside {', '.join(sorted(self._kinds))}"
            )
        return content


def _fill(part: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a content part with the columns filled in all of its texts."""
    if isinstance(part, str):
        return safe_format(part, values)
    if isinstance(part, Mapping):
        return {key: _fill(value, values) for key, value in part.items()}
    return [_fill(value, values) for value in part] if isinstance(part, list) else part


def _problems(template: object, ice_token: object) -> list[str]:
    found = problems_of(template)
    if ice_token is not None and not isinstance(ice_token, str):
        found.append(f"ice_token must be text, got {type(ice_token).__name__}")
    if isinstance(template, Mapping):
        for name in SECTIONS:
            for position, item in enumerate(items_of(template.get(name))):
                if isinstance(item, Mapping) and "prompt_mm" in item:
                    found += _problems_of_parts(item["prompt_mm"], f"{name}[{position}]")
    return found


def _problems_of_parts(parts: object, where: str) -> list[str]:
    if not isinstance(parts, Mapping):
        return [f"{where}: prompt_mm must map kinds of content to parts, got {type(parts).__name__}"]
    found: list[str] = []
    for kind, part in parts.items():
        if kind not in KINDS:
            found.append(f"{where}: unknown kind of content {kind!r} in prompt_mm{nearest(str(kind), KINDS)}")
        elif not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            found.append(f"{where}: prompt_mm[{kind!r}] must be a part such as {_EXAMPLES[kind]}, got {part!r}"[:300])
        elif part["type"] not in part:
            found.append(f"{where}: prompt_mm[{kind!r}] is of type {part['type']!r} and has no key of that name")
    return found


_EXAMPLES = {
    "text": {"type": "text", "text": "{question}"},
    **{kind: {"type": f"{kind}_url", f"{kind}_url": {"url": f"{{{kind}}}"}} for kind in KINDS if kind != "text"},
}
