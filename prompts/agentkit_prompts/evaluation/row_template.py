"""`RowTemplate`: base of templates of dataset rows; and functions that read and check a dialogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from agentkit_prompts.errors import Problem, Problems
from agentkit_prompts.evaluation.problems import unknown_names, wrong_type

SECTIONS = ("begin", "round", "end")
"""The sections of a dialogue, in order; `round` is required."""


class RowTemplate(Protocol):
    """Base of templates that convert a row, a mapping from column names to values, to a prompt.

    A template need not inherit from this class. The defaults describe one dialogue, without labels and without a place
    for worked examples.
    """

    ice_token: str | None = None
    """Token at the place of worked examples."""

    @property
    def labels(self) -> tuple[Any, ...]:
        """Labels that have their own prompts; empty if the template has one prompt."""
        return ()

    @property
    def is_dialogue(self) -> bool:
        """True for one dialogue with roles. Worked examples that are dialogues are joined without a separator."""
        return True

    def places(self, label: Any = None) -> str:
        """Return the places for worked examples: "text" (inside a text), "items" (between items) or "" (none)."""
        return ""

    def item(self, row: Mapping[str, Any], *, ice: Any = "", hide: str | None = None, instead: str = "") -> Any:
        """Return the prompt of `row`.

        Args:
            row: Mapping from column names to values. Unknown names in braces are unchanged.
            ice: Worked examples, which replace `ice_token` unchanged.
            hide: Answer column, whose value is not shown.
            instead: Text that replaces the value.

        Raises:
            InContextError: A column is missing in the row, or the examples cannot be put into the template.
        """
        ...

    def label_item(
        self, row: Mapping[str, Any], label: Any = None, *, ice: Any = "", keep_separator: bool = False
    ) -> Any:
        """Return the prompt that a model scores for `label`, with the answer of `row` visible."""
        return self.item(row, ice=ice)

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> Any:
        """Return `row` as a worked example with its answer; of a dialogue, only the section `round`."""
        ...


def items_of(value: Any) -> Sequence[Any]:
    """Return the items of a section: a list unchanged, a single item as a list, empty for None."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return value
    return (value,)


def located(template: object) -> Iterator[tuple[str, Any]]:
    """Yield the items of a dialogue, each with its place, such as `round[0]`."""
    if isinstance(template, Mapping):
        for name in SECTIONS:
            for position, item in enumerate(items_of(template.get(name))):
                yield f"{name}[{position}]", item


def problems_of(template: object) -> Problems:
    """Return all problems of a dialogue."""
    if not isinstance(template, Mapping):
        return wrong_type("template", template, Mapping, "a dialogue with a 'round' of role items")
    problems = unknown_names("", template, SECTIONS, "unknown section")
    if "round" not in template:
        problems.append(Problem("round", "missing; a dialogue needs the list of its turns"))
    for place, item in located(template):
        if isinstance(item, Mapping):
            problems += wrong_type(f"{place}.role", item.get("role"), str, "text")
            problems += wrong_type(f"{place}.prompt", item.get("prompt", ""), str, "text")
        else:
            problems += wrong_type(place, item, str, "text or a role item")
    return problems
