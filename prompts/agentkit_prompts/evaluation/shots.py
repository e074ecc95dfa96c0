"""`Shots`: the training rows of a dataset as the worked examples of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.prompt_list import PromptList, copies
from agentkit_prompts.evaluation.row_template import RowTemplate

__all__ = ["Shots"]


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

    def show(self, ids: Sequence[int], *, keep_separator: bool = True) -> Any:
        """Return the rows at these positions as text, as a `PromptList`, or as messages, as their template makes them.

        Args:
            ids: Positions, in the order in which they are shown.
            keep_separator: Whether the `sep_token` of the template stays in.

        Raises:
            InContextError: There is no template, an id is no row, or a row lacks the answer that chooses its label;
                names all of them.
        """
        if not ids:
            return self.end
        template = self.check(ids)
        items = [self._item(template, number, keep_separator) for number in ids]
        if all(isinstance(item, str) for item in items):
            return self.separator.join(items) + self.end
        if not any(isinstance(item, str | PromptList) for item in items):
            return [message for item in items for message in copies(item)]
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

    def check(self, ids: Sequence[int]) -> RowTemplate:
        """Return the template when these rows can be shown.

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
        return template

    def _item(self, template: RowTemplate, number: int, keep_separator: bool) -> Any:
        item = self._items.get((number, keep_separator))
        if item is None:
            row = self.rows[number]
            label = row.get(self.answer) if self.answer is not None else None
            item = template.ice_item(row, label, keep_separator=keep_separator)
            self._items[number, keep_separator] = item
        return item
