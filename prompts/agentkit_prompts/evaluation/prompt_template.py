"""`PromptTemplate`: how one row of a dataset becomes a prompt, or a worked example in another row's prompt."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems
from agentkit_prompts.evaluation.columns import Slots, Tokens, slots
from agentkit_prompts.evaluation.problems import inside, raise_problems
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, copies, section
from agentkit_prompts.evaluation.row_template import SECTIONS, RowTemplate, items_of, located, problems_of
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.names import nearest

__all__ = ["PromptTemplate", "Shown"]

Shown: TypeAlias = str | PromptList
"""Worked examples, rendered: text, or items with roles."""

_SHOWN_CHARS = 80


class _PlannedItem(NamedTuple):
    """An item, compiled for rows with the same columns."""

    item: dict[str, Any] | None
    """Role item or marker; None for text."""
    parts: tuple[Slots, ...]
    """The text, cut at the places of examples; empty if the item has no text."""


class PromptTemplate(RowTemplate):
    """A text, a dialogue or a label for each of several such, with a row's columns in braces (OpenCompass document).

    Args:
        template: Text; a dialogue `{"begin", "round", "end"}` of texts and role items; or a dict of label to either.
        ice_token: Where worked examples go. Required to be in a text; what has no such place takes no examples.
        sep_token: Marks where the scored answer begins; it is taken out before a model sees the prompt.
        column_token_map: Column name to a token that stands for it, beside `{column}`.

    Raises:
        InContextError: Any of them is not like that; names everything at once.
    """

    def __init__(
        self,
        template: str | Mapping[Any, Any],
        ice_token: str | None = None,
        sep_token: str | None = None,
        column_token_map: Mapping[str, str] | None = None,
    ) -> None:
        problems: Problems = []
        problems += _problems_of_tokens(ice_token, sep_token, column_token_map)
        problems += self._problems(template, ice_token if isinstance(ice_token, str) else "")
        raise_problems(type(self).__name__, problems)
        if doubt := _doubt(template, ice_token):
            warn(InContextWarning(f"{type(self).__name__}: {doubt.text}", name=doubt.place))
        self.template = deepcopy(template)
        self.ice_token = ice_token or None
        self.sep_token = sep_token or None
        self.tokens: Tokens = tuple((token, name) for name, token in (column_token_map or {}).items())
        """Other spellings of columns."""
        self._plans: dict[Hashable, list[_PlannedItem]] = {}

    @property
    def labels(self) -> tuple[Any, ...]:
        if _is_labelled(self.template):
            return tuple(self.template)
        return ()

    @property
    def is_dialogue(self) -> bool:
        return isinstance(self.template, Mapping) and not _is_labelled(self.template)

    def places(self, label: Any = None) -> str:
        prompt = self._prompt_of(label)
        if self.ice_token is None:
            return ""
        if isinstance(prompt, str):
            return "text" if self.ice_token in prompt else ""
        found = ""
        for _, item in located(prompt):
            # Inside the text of a role only text can be inserted, so one such place decides.
            if not isinstance(item, str) and self.ice_token in item.get("prompt", ""):
                return "text"
            if isinstance(item, str) and self.ice_token in item:
                found = "items"
        return found

    def item(self, row: Mapping[str, Any], *, ice: Shown = "", hide: str | None = None, instead: str = "") -> Shown:
        """Return the prompt that asks for the answer of `row`; of label prompts, the first.

        Raises:
            InContextError: The examples have roles and their place is inside text, or a value cannot become text.
        """
        first = next(iter(self.labels), None)
        if hide is not None:
            row = {**row, hide: instead}
        return self._render(first, "prompt", row, ice)

    def label_item(
        self, row: Mapping[str, Any], label: Any = None, *, ice: Shown = "", keep_separator: bool = False
    ) -> Shown:
        """Return the prompt that a model scores for `label`, with the answer of `row` visible.

        Raises:
            InContextError: There are label prompts and none for `label`; or as `item`.
        """
        return self._render(label, "scored" if keep_separator else "prompt", row, ice)

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> Shown:
        return self._render(label, "ice" if keep_separator else "clean ice", row, "")

    def _prompt_of(self, label: Any) -> Any:
        """Return the text or dialogue for a label."""
        if not _is_labelled(self.template):
            return self.template
        try:
            prompt = self.template[label]
        except (KeyError, TypeError):
            hint = nearest(str(label), map(str, self.labels))
            text = f"{type(self).__name__}: no prompt for label {label!r} ({type(label).__name__}){hint}"
            raise InContextError(text, name=str(label)) from None
        if isinstance(prompt, list):
            return {"round": prompt}
        return prompt

    def _compile(self, prompt: Any, form: str, names: tuple[str, ...]) -> list[_PlannedItem]:
        items: list[Item] = []
        if isinstance(prompt, str):
            items.append(prompt)
        elif form.endswith("ice"):
            items += section("ice", items_of(prompt["round"]))
        else:
            for name in SECTIONS:
                if name in prompt:
                    items += section(name, items_of(prompt[name]))
        plan: list[_PlannedItem] = []
        for item in items:
            if isinstance(item, str):
                plan.append(_PlannedItem(None, self._parts(item, form, names)))
            elif "prompt" in item:
                plan.append(_PlannedItem(item, self._parts(item["prompt"], form, names)))
            else:
                plan.append(_PlannedItem(item, ()))
        return plan

    def _parts(self, text: str, form: str, names: tuple[str, ...]) -> tuple[Slots, ...]:
        """Cut a text at the places of examples, and each piece at its columns."""
        pieces = [text]
        if self.ice_token is not None and form.endswith("ice"):
            pieces = [text.replace(self.ice_token, "")]
        elif self.ice_token is not None:
            pieces = text.split(self.ice_token)
        if self.sep_token is not None and form in ("prompt", "clean ice"):
            pieces = [piece.replace(self.sep_token, "") for piece in pieces]
        return tuple([slots(piece, names, self.tokens) for piece in pieces])

    def _render(self, label: Any, form: str, row: Mapping[str, Any], ice: Shown) -> Shown:
        prompt, names = self._prompt_of(label), tuple(row)
        # Rows with the same columns share a plan: a text is cut at its columns once, and filled for each row.
        key = (label if _is_labelled(self.template) else None, form, names)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_CACHED:
                self._plans.clear()
            plan = self._plans[key] = self._compile(prompt, form, names)
        if isinstance(prompt, str):
            return self._joined(plan[0].parts, row, ice, None)
        result = PromptList()
        for item, parts in plan:
            if item is None:
                self._add_text(result, parts, row, ice)
            elif parts:
                result.append({**item, "prompt": self._joined(parts, row, ice, item["role"])})
            else:
                result.append(dict(item))
        return result

    def _add_text(self, result: PromptList, parts: Sequence[Slots], row: Mapping[str, Any], ice: Shown) -> None:
        """Append a text without a role: worked examples with roles go between its parts."""
        if self.ice_token is None or isinstance(ice, str):
            result.append(self._joined(parts, row, ice, None))
            return
        for number, part in enumerate(parts):
            if number:
                result.extend(copies(ice))
            if part.text:
                result.append(part.fill(row))

    def _joined(self, parts: Sequence[Slots], row: Mapping[str, Any], ice: Shown, role: str | None) -> str:
        if len(parts) == 1:
            return parts[0].fill(row)
        if not isinstance(ice, str):
            place = "a text"
            if role is not None:
                place = f"the prompt of role {role!r}"
            raise InContextError(
                f"{type(self).__name__}: {self.ice_token!r} is in {place}, and the worked examples have roles; put the "
                "token among the items of `begin` or `round`, or make the examples text",
                name=self.ice_token,
                path=role,
            )
        return ice.join([part.fill(row) for part in parts])

    def _problems(self, template: object, ice_token: str) -> Problems:
        """Return all problems of a template."""
        if not isinstance(template, str | Mapping):
            return [Problem("template", f"must be text or a dict, got {type(template).__name__}")]
        if not isinstance(template, Mapping) or not _is_labelled(template):
            return _problems_of_prompt(template, "template", ice_token)
        problems: Problems = []
        for label, prompt in template.items():
            place = f"template[{label!r}]"
            if isinstance(prompt, str):
                problems += _problems_of_prompt(prompt, place, ice_token)
            else:
                problems += inside(place, _problems_of_prompt(prompt, "", ice_token))
        return problems


def _problems_of_tokens(ice_token: object, sep_token: object, columns: object) -> Problems:
    problems: Problems = []
    for name, token in (("ice_token", ice_token), ("sep_token", sep_token)):
        if not isinstance(token, str | None):
            problems.append(Problem(name, f"must be text, got {type(token).__name__}"))
    if isinstance(columns, Mapping):
        for name, token in columns.items():
            # An empty token would match between all characters.
            if not isinstance(token, str) or not token:
                text = f"must be text that is not empty, got {token!r}"
                problems.append(Problem(f"column_token_map[{name!r}]", text))
    elif columns is not None:
        text = f"must map column names to tokens, got {type(columns).__name__}"
        problems.append(Problem("column_token_map", text))
    return problems


def _problems_of_prompt(prompt: object, place: str, ice_token: str) -> Problems:
    """Return the problems of one text or dialogue; those of a dialogue have its own places."""
    if isinstance(prompt, str):
        if ice_token in prompt:
            return []
        return [Problem(place, f"ice_token {ice_token!r} is not in {prompt[:_SHOWN_CHARS]!r}")]
    if isinstance(prompt, list):
        return problems_of({"round": prompt})
    if isinstance(prompt, Mapping):
        return problems_of(prompt)
    return [Problem(place, f"must be text, a list of turns or a dialogue, got {type(prompt).__name__}")]


def _is_labelled(template: object) -> bool:
    return isinstance(template, Mapping) and not set(template) <= set(SECTIONS)


def _doubt(template: Any, ice_token: str | None) -> Problem | None:
    """Return the part of a template that probably does something else than its author expects."""
    if _is_labelled(template):
        return _mixed_keys(template)
    return _text_in_round(template, ice_token)


def _mixed_keys(template: Mapping[Any, Any]) -> Problem | None:
    """Return a problem if some labels of a template are names of sections: another key is probably misspelt."""
    labels = [key for key in template if key not in SECTIONS]
    sections = [key for key in template if key in SECTIONS]
    if not sections:
        return None
    names = ", ".join(f"{key!r}{nearest(str(key), SECTIONS)}" for key in labels)
    text = f"labels `{'`, `'.join(sections)}`: they are no sections, because the template has other keys: {names}"
    return Problem(str(labels[0]), text)


def _text_in_round(template: Any, ice_token: str | None) -> Problem | None:
    texts: list[str] = []
    for place, item in located(template):
        if not place.startswith("round") or not isinstance(item, str):
            continue
        # The place of worked examples is a text, too.
        content = item.strip()
        if ice_token is not None:
            content = content.replace(ice_token, "")
        if content:
            texts.append(repr(item[:_SHOWN_CHARS]))
    if not texts:
        return None
    text = f"{', '.join(texts)} in `round` has no role, so it is sent before all turns; give it a role"
    return Problem("round", text)
