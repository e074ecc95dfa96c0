"""`PromptList`: evaluation prompt that does not depend on a model: texts, role items and section markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex, TypeAlias

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.columns import safe_format

Item: TypeAlias = str | dict[str, Any]
"""Text, a role item `{"role", "prompt", ...}`, or a marker `{"section", "pos": "begin" | "end"}`."""


class PromptList(list[Item]):
    """Items of a prompt, in order (see the OpenCompass document).

    Methods return new lists with copies of the dicts; only `+=` changes the list. A text is one item, not a sequence
    of characters.
    """

    __slots__ = ()

    def format(self, row: Mapping[str, Any] | None = None, /, **columns: Any) -> PromptList:
        """Return the list with the columns filled in, in texts and in the `prompt` of role items.

        Raises:
            InContextError: An item is neither text nor dict, its prompt is not text, or a value cannot become text.
        """
        values = {**(row or {}), **columns}
        return self._map(lambda text: safe_format(text, values))

    def replace(self, src: str, dst: str | PromptList) -> PromptList:
        """Return the list with `src` replaced by `dst` in all texts and prompts.

        If `dst` is a `PromptList`, its items are put between the pieces of each text, and empty texts are removed.

        Raises:
            InContextError: `src` is empty, or is inside the prompt of a role item, which cannot contain items.
        """
        if not src:
            raise InContextError("PromptList.replace: src is empty; pass the token to replace", name="src")
        if isinstance(dst, str):
            return self._map(lambda text: text.replace(src, dst))
        if not isinstance(dst, PromptList):
            raise InContextError(
                f"PromptList.replace: expected text or a PromptList for {src!r}, got {type(dst).__name__}; "
                "wrap a list of items as PromptList(items)",
                name="dst",
            )
        items: list[Item] = []
        for position, item in enumerate(self):
            if isinstance(item, str):
                items += _replaced(item, src, dst)
            elif src in _prompt(position, item):
                raise InContextError(
                    f"PromptList[{position}]: {src!r} is in the prompt of role {item.get('role')!r}, and the "
                    "items that replace it have roles; put the token among the items of the list, or use text examples",
                    path=f"[{position}]",
                    name=src,
                )
            else:
                items.append(dict(item))
        return PromptList(items)

    def _map(self, change: Callable[[str], str]) -> PromptList:
        items: list[Item] = []
        for position, item in enumerate(self):
            if isinstance(item, str):
                items.append(change(item))
                continue
            prompt = _prompt(position, item)
            copy = dict(item)
            # An item without a prompt uses the default text of its role, so no prompt is added.
            if prompt:
                copy["prompt"] = change(prompt)
            items.append(copy)
        return PromptList(items)

    def __add__(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, other: str | Iterable[Item] | None, /
    ) -> PromptList:
        """Return the concatenation; a text is one item, and None adds no item."""
        return PromptList([*copies(self), *_items(other)])

    def __radd__(self, other: str | Iterable[Item] | None, /) -> PromptList:
        """Return `other` followed by this list."""
        return PromptList([*_items(other), *copies(self)])

    def __iadd__(self, other: str | Iterable[Item] | None, /) -> PromptList:  # type: ignore[override]
        """Append text as one item, or all items of a list."""
        self.extend(_items(other))
        return self

    def __mul__(self, times: SupportsIndex, /) -> PromptList:
        """Return the list repeated `times` times."""
        return PromptList([item for _ in range(times.__index__()) for item in copies(self)])

    def __str__(self) -> str:
        """Return all texts and prompts, joined without a separator.

        Raises:
            InContextError: An item is neither text nor dict, or its prompt is not text.
        """
        return "".join(
            [item if isinstance(item, str) else _prompt(position, item) for position, item in enumerate(self)]
        )


def section(name: str, items: Iterable[Item]) -> list[Item]:
    """Return `items` between the markers of a section: `begin`, `round`, `ice` or `end`."""
    return [{"section": name, "pos": "begin"}, *items, {"section": name, "pos": "end"}]


def is_marker(item: object) -> bool:
    """True if an item only marks the start or the end of a section."""
    return isinstance(item, dict) and len(item) == 2 and "section" in item and "pos" in item


def copies(items: Iterable[Item]) -> list[Item]:
    """Return the items, with copies of their dicts."""
    return [dict(item) if isinstance(item, dict) else item for item in items]


def _replaced(text: str, src: str, dst: PromptList) -> list[Item]:
    """Return the pieces of a text around `src`, with copies of the items of `dst` between them."""
    items: list[Item] = []
    for number, piece in enumerate(text.split(src)):
        if number:
            items += copies(dst)
        # In a prompt without roles, an empty text would be an empty line.
        if piece:
            items.append(piece)
    return items


def _items(other: object) -> list[Item]:
    if not other:
        return []
    if isinstance(other, str):
        return [other]
    if isinstance(other, list | tuple):
        return copies(other)
    raise InContextError(
        f"PromptList: cannot be joined with a {type(other).__name__}; expected text or a list of items",
        value=type(other).__name__,
    )


def _prompt(position: int, item: object) -> str:
    """Return the prompt of a role item, or empty text if it has none.

    Raises:
        InContextError: The item is not a dict, or its prompt is not text.
    """
    if not isinstance(item, dict):
        raise InContextError(
            f"PromptList[{position}]: expected text or a dict with a role, got {type(item).__name__} {item!r}"[:300],
            path=f"[{position}]",
        )
    prompt = item.get("prompt", "")
    if not isinstance(prompt, str):
        role, kind = item.get("role"), type(prompt).__name__
        text = f"PromptList[{position}]: the prompt of role {role!r} must be text, got {kind}"
        raise InContextError(text, path=f"[{position}].prompt", value=kind)
    return prompt
