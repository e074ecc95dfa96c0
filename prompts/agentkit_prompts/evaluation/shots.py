"""`Shots`: the training rows of a dataset as the worked examples of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.prompt_list import PromptList

__all__ = ["RowTemplate", "Shots"]

_MAX_SHOWN = 256


class RowTemplate(Protocol):
    """What turns a row into a prompt: `PromptTemplate`, and templates that follow it."""

    ice_token: str | None

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels it has a prompt for; none when there is one prompt for all."""
        ...

    @property
    def is_dialogue(self) -> bool:
        """Whether it is one dialogue with roles."""
        ...

    def places(self, label: Any = None) -> str:
        """Say where examples can go: "" nowhere, "text" inside text, "items" among items."""
        ...

    def item(self, row: Mapping[str, Any], *, ice: Any = "", hide: str | None = None, instead: str = "") -> Any:
        """Return the prompt that asks for the answer of `row`."""
        ...

    def label_item(
        self, row: Mapping[str, Any], label: Any = None, *, ice: Any = "", keep_separator: bool = False
    ) -> Any:
        """Return the prompt that a model scores for `label`."""
        ...

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> Any:
        """Return `row` as a worked example."""
        ...


class Shots:
    """Rows, rendered as worked examples and put one after the other; each is rendered once.

    Args:
        template: How a row is shown; None when nothing is to be shown.
        rows: The rows of the training split.
        answer: The column whose value chooses the label, where the template has labels.
        separator: Between two examples. Dialogues have none, and no end: their turns are apart already.
        end: After the last example.
    """

    def __init__(
        self,
        template: RowTemplate | None,
        rows: Sequence[Mapping[str, Any]] = (),
        *,
        answer: str | None = None,
        separator: str = "\n",
        end: str = "\n",
    ) -> None:
        self.template = template
        self.rows = rows
        self.answer = answer
        plain = template is None or not template.is_dialogue
        self.separator, self.end = (separator, end) if plain else ("", "")
        self._items: dict[tuple[int, bool], Any] = {}
        self._shown: dict[tuple[tuple[int, ...], bool], Any] = {}

    def show(self, ids: Sequence[int], *, keep_separator: bool = True) -> Any:
        """Return the rows at these positions as text, as a `PromptList`, or as messages, as their template makes them.

        Args:
            ids: Positions, in the order in which they are shown.
            keep_separator: Whether the `sep_token` of the template stays in.

        Raises:
            InContextError: There is no template, an id is no row, or a row lacks the answer that chooses its label;
                names all of them.
        """
        key = (tuple(ids), keep_separator)
        shown = self._shown.get(key)
        if shown is None:
            if len(self._shown) >= _MAX_SHOWN:
                self._shown.clear()
            shown = self._shown[key] = self._joined(key[0], keep_separator)
        if isinstance(shown, str):
            return shown
        return type(shown)([dict(item) if isinstance(item, dict) else item for item in shown])

    def _joined(self, ids: tuple[int, ...], keep_separator: bool) -> Any:
        if not ids:
            return self.end
        self.check(ids)
        items = [self._item(number, keep_separator) for number in ids]
        if all(isinstance(item, str) for item in items):
            return self.separator.join(items) + self.end
        if not any(isinstance(item, str | PromptList) for item in items):
            return [message for item in items for message in item]
        found = PromptList()
        for item in items:
            if isinstance(item, str):  # one text with what stands behind it, as OpenCompass joins them
                found.append(item + self.separator)
                continue
            found += item
            if self.separator:
                found.append(self.separator)
        found.append(self.end)
        return found

    def check(self, ids: Sequence[int]) -> None:
        """See to it that these rows can be shown.

        Raises:
            InContextError: They cannot; names all reasons.
        """
        template, size = self.template, len(self.rows)
        if template is None:
            raise InContextError(
                f"{len(ids)} rows are chosen as worked examples, and there is no ice_template to show them with; "
                "give one, or retrieve none (ZeroRetriever)"
            )
        odd = [repr(number) for number in ids if type(number) is not int or not 0 <= number < size]
        problems = [f"no row {', '.join(odd)} to show: there are {size}, counted from 0"] if odd else []
        if template.labels and not odd:
            without = [str(number) for number in ids if self.answer is None or self.answer not in self.rows[number]]
            if without:
                problems.append(
                    f"rows {', '.join(without)} have no column {self.answer!r}, whose value chooses one of the labels "
                    f"{', '.join(map(repr, template.labels))}"
                )
        if problems:
            raise InContextError(f"worked examples: {'; '.join(problems)}")

    def _item(self, number: int, keep_separator: bool) -> Any:
        item = self._items.get((number, keep_separator))
        if item is None:
            row = self.rows[number]
            label = row.get(self.answer) if self.answer is not None else None
            assert self.template is not None
            item = self.template.ice_item(row, label, keep_separator=keep_separator)
            self._items[number, keep_separator] = item
        return item
