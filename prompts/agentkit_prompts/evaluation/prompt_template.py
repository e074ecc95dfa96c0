"""`PromptTemplate`: template that converts a dataset row to a prompt, or to a worked example for another row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, brief, raise_problems
from agentkit_prompts.evaluation.columns import Slots, Tokens, slots
from agentkit_prompts.evaluation.problems import inside, wrong_type
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, copies, section
from agentkit_prompts.evaluation.row_template import SECTIONS, RowTemplate, items_of, located, problems_of
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.names import nearest

Shown: TypeAlias = str | PromptList
"""A rendered prompt or rendered worked examples: text, or items with roles."""


class _PlannedItem(NamedTuple):
    """An item of a prompt, compiled for rows that have the same columns."""

    item: dict[str, Any] | None
    """Role item or marker; None for text."""
    parts: tuple[Slots, ...]
    """The text, split at the places of examples; empty if the item has no text."""


class PromptTemplate(RowTemplate):
    """A text or a dialogue with columns of a row in braces, or one for each label (see the OpenCompass document).

    Args:
        template: Text; a dialogue `{"begin", "round", "end"}` of texts and role items; or a dict from labels to texts
            or dialogues.
        ice_token: Token at the place of worked examples. Without it, a prompt shows no examples.
        sep_token: Token at the start of the scored answer; it is removed from prompts that are not scored.
        column_token_map: Mapping from a column name to a token that has the same meaning as `{column}`.

    Raises:
        InContextError: An argument is invalid; the error lists all problems.
    """

    def __init__(
        self,
        template: str | Mapping[Any, Any],
        ice_token: str | None = None,
        sep_token: str | None = None,
        column_token_map: Mapping[str, str] | None = None,
    ) -> None:
        problems = _problems_of_tokens(ice_token, sep_token, column_token_map)
        problems += self._problems(template, ice_token if isinstance(ice_token, str) else "")
        raise_problems(InContextError, type(self).__name__, problems)
        if mistake := _probable_mistake(template, ice_token):
            warn(InContextWarning(f"{type(self).__name__}: {mistake.text}", name=mistake.place))
        self.template = deepcopy(template)
        self.ice_token = ice_token or None
        self.sep_token = sep_token or None
        self.tokens: Tokens = tuple((token, name) for name, token in (column_token_map or {}).items())
        """Pairs of a token and the column that it means."""
        self._has_labels = _is_labelled(template)
        self._plans: dict[Hashable, list[_PlannedItem]] = {}

    @property
    def labels(self) -> tuple[Any, ...]:
        if self._has_labels:
            return tuple(self.template)
        return ()

    @property
    def is_dialogue(self) -> bool:
        return isinstance(self.template, Mapping) and not self._has_labels

    def places(self, label: Any = None) -> str:
        prompt = self._prompt_of(label)
        if isinstance(prompt, str):
            return "text" if self._has_place([prompt]) else ""
        texts: list[str] = []
        texts_of_roles: list[str] = []
        for _, item in located(prompt):
            if isinstance(item, str):
                texts.append(item)
            else:
                texts_of_roles.append(item.get("prompt", ""))
        # Only text can be put inside the text of a role, so one place inside a role requires text examples.
        if self._has_place(texts_of_roles):
            return "text"
        if self._has_place(texts):
            return "items"
        return ""

    def _has_place(self, texts: Sequence[str]) -> bool:
        return self.ice_token is not None and any(self.ice_token in text for text in texts)

    def item(self, row: Mapping[str, Any], *, ice: Shown = "", hide: str | None = None, instead: str = "") -> Shown:
        """Return the prompt of `row`, for the first label if the template has labels.

        Raises:
            InContextError: The examples have roles but their place is inside text, or a value cannot become text.
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
            InContextError: The template has labels, but not `label`; or for the reasons of `item`.
        """
        return self._render(label, "scored" if keep_separator else "prompt", row, ice)

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> Shown:
        return self._render(label, "ice" if keep_separator else "clean ice", row, "")

    def _prompt_of(self, label: Any) -> Any:
        """Return the text or dialogue for a label."""
        if not self._has_labels:
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

    def _plan(self, prompt: Any, label: Any, form: str, names: tuple[str, ...]) -> list[_PlannedItem]:
        """Return the items of a prompt, compiled for rows whose columns are `names`.

        The plan is cached: each text is split at its columns once, and filled for each row.

        Args:
            prompt: Text or dialogue.
            label: The label of `prompt`.
            form: `prompt`, `scored` (with `sep_token`), `ice` (a worked example) or `clean ice` (without `sep_token`).
            names: Names of the columns.
        """
        key = (label if self._has_labels else None, form, names)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_CACHED:
                self._plans.clear()
            items = _items(prompt, is_example=form.endswith("ice"))
            plan = self._plans[key] = [self._planned(item, form, names) for item in items]
        return plan

    def _planned(self, item: Item, form: str, names: tuple[str, ...]) -> _PlannedItem:
        if isinstance(item, str):
            return _PlannedItem(None, self._parts(item, form, names))
        if "prompt" in item:
            return _PlannedItem(item, self._parts(item["prompt"], form, names))
        return _PlannedItem(item, ())

    def _parts(self, text: str, form: str, names: tuple[str, ...]) -> tuple[Slots, ...]:
        """Split a text at the places of examples, and each piece at its columns."""
        pieces = self._around_examples(text)
        # A worked example contains no worked examples.
        if form.endswith("ice"):
            pieces = ["".join(pieces)]
        if self.sep_token is not None and form in ("prompt", "clean ice"):
            pieces = [piece.replace(self.sep_token, "") for piece in pieces]
        return tuple([slots(piece, names, self.tokens) for piece in pieces])

    def _around_examples(self, text: str) -> list[str]:
        if self.ice_token is None:
            return [text]
        return text.split(self.ice_token)

    def _render(self, label: Any, form: str, row: Mapping[str, Any], ice: Shown) -> Shown:
        prompt = self._prompt_of(label)
        plan = self._plan(prompt, label, form, tuple(row))
        if isinstance(prompt, str):
            return self._join_parts(plan[0].parts, row, ice, None)
        result = PromptList()
        for item, parts in plan:
            if item is None:
                self._add_text(result, parts, row, ice)
            elif parts:
                result.append({**item, "prompt": self._join_parts(parts, row, ice, item["role"])})
            else:
                result.append(dict(item))
        return result

    def _add_text(self, result: PromptList, parts: Sequence[Slots], row: Mapping[str, Any], ice: Shown) -> None:
        """Append a text without a role; worked examples with roles are put between its parts."""
        if self.ice_token is None or isinstance(ice, str):
            result.append(self._join_parts(parts, row, ice, None))
            return
        for number, part in enumerate(parts):
            if number:
                result.extend(copies(ice))
            if part.text:
                result.append(part.fill(row))

    def _join_parts(self, parts: Sequence[Slots], row: Mapping[str, Any], ice: Shown, role: str | None) -> str:
        if len(parts) == 1:
            return parts[0].fill(row)
        if not isinstance(ice, str):
            place = "a text"
            if role is not None:
                place = f"the prompt of role {role!r}"
            raise InContextError(
                f"{type(self).__name__}: {self.ice_token!r} is in {place}, and the worked examples have roles; put the "
                "token among the items of `begin` or `round`, or use examples that are text",
                name=self.ice_token,
                path=role,
            )
        return ice.join([part.fill(row) for part in parts])

    def _problems(self, template: object, ice_token: str) -> Problems:
        """Return all problems of a template."""
        if not isinstance(template, str | Mapping):
            return wrong_type("template", template, str | Mapping, "text or a dict")
        if not isinstance(template, Mapping) or not _is_labelled(template):
            return _problems_of_prompt(template, "template", ice_token)
        problems: Problems = []
        for label, prompt in template.items():
            place = f"template[{label!r}]"
            if isinstance(prompt, list | Mapping):
                problems += inside(place, _problems_of_prompt(prompt, "", ice_token))
            else:
                problems += _problems_of_prompt(prompt, place, ice_token)
        return problems


def _items(prompt: Any, *, is_example: bool) -> list[Item]:
    """Return the items of a text or dialogue; for a worked example, only the rounds."""
    if isinstance(prompt, str):
        return [prompt]
    if is_example:
        return section("ice", items_of(prompt["round"]))
    return [item for name in SECTIONS if name in prompt for item in section(name, items_of(prompt[name]))]


def _problems_of_tokens(ice_token: object, sep_token: object, columns: object) -> Problems:
    problems = wrong_type("ice_token", ice_token, str | None, "text")
    problems += wrong_type("sep_token", sep_token, str | None, "text")
    problems += wrong_type("column_token_map", columns, Mapping | None, "a dict of column names to tokens")
    if isinstance(columns, Mapping):
        for name, token in columns.items():
            # An empty token would match between all characters.
            if not isinstance(token, str) or not token:
                text = f"must be text that is not empty, got {brief(token)}"
                problems.append(Problem(f"column_token_map[{name!r}]", text))
    return problems


def _problems_of_prompt(prompt: object, place: str, ice_token: str) -> Problems:
    """Return the problems of one text, at `place`, or of one dialogue, at the places of its items."""
    if isinstance(prompt, list):
        prompt = {"round": prompt}
    if isinstance(prompt, Mapping):
        return problems_of(prompt)
    problems = wrong_type(place, prompt, str, "text, a list of turns or a dialogue")
    if isinstance(prompt, str) and ice_token not in prompt:
        problems.append(Problem(place, f"ice_token {ice_token!r} is not in {brief(prompt)}"))
    return problems


def _is_labelled(template: object) -> bool:
    return isinstance(template, Mapping) and not set(template) <= set(SECTIONS)


def _probable_mistake(template: Any, ice_token: str | None) -> Problem | None:
    """Return the problem of a part of a template that is valid but probably has an unexpected effect."""
    if _is_labelled(template):
        labels = [key for key in template if key not in SECTIONS]
        sections = [key for key in template if key in SECTIONS]
        if not sections:
            return None
        names = ", ".join(f"{key!r}{nearest(str(key), SECTIONS)}" for key in labels)
        text = f"labels `{'`, `'.join(sections)}`: they are not sections, because the template has other keys: {names}"
        return Problem(str(labels[0]), text)
    items = [item for place, item in located(template) if place.startswith("round")]
    # A text that only contains the token of worked examples is correct.
    texts = [item for item in items if isinstance(item, str) and item.strip().replace(ice_token or "", "")]
    if not texts:
        return None
    listing = ", ".join(map(brief, texts))
    return Problem("round", f"{listing} in `round` has no role, so it is sent before all turns; add a role")
