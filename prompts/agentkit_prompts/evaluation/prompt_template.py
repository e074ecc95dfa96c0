"""`PromptTemplate`: how one row of a dataset becomes a prompt, or a worked example in another row's prompt."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning
from agentkit_prompts.evaluation.columns import Slots, Tokens, slots
from agentkit_prompts.evaluation.problems import Problem, refuse
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, copies, section
from agentkit_prompts.evaluation.row_template import SECTIONS, RowTemplate, items_of, located, problems_of
from agentkit_prompts.names import nearest

__all__ = ["PromptTemplate", "Shown"]

Shown: TypeAlias = str | PromptList
"""Worked examples, rendered: text, or items with roles."""

_MAX_PLANS = 64


_Plan: TypeAlias = list[tuple[dict[str, Any] | None, tuple[Slots, ...]]]
"""What is compiled for rows with the same columns: role item or marker (None for text), and its text in the parts
between which the examples go."""


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
        problems = [
            Problem(name, f"{name} must be text, got {type(token).__name__}")
            for name, token in (("ice_token", ice_token), ("sep_token", sep_token))
            if not isinstance(token, str | None)
        ]
        if not isinstance(column_token_map, Mapping | None):
            text = f"column_token_map must map column names to tokens, got {type(column_token_map).__name__}"
            problems.append(Problem("column_token_map", text))
        else:
            problems += [
                Problem(
                    f"column_token_map[{name!r}]",
                    f"column_token_map[{name!r}] must be text that is not empty, got {token!r}",
                )
                for name, token in (column_token_map or {}).items()
                if not isinstance(token, str) or not token
            ]
        problems += self._problems(template, ice_token if isinstance(ice_token, str) else "")
        if problems:
            raise refuse(type(self).__name__, problems)
        if problem := _doubts(template, ice_token):
            warn(InContextWarning(f"{type(self).__name__}: {problem.text}", name=problem.place))
        self.template = deepcopy(template)
        self.ice_token = ice_token or None
        self.sep_token = sep_token or None
        self.tokens: Tokens = tuple((token, name) for name, token in (column_token_map or {}).items())
        """Other spellings of columns."""
        self._plans: dict[Hashable, _Plan] = {}

    @property
    def labels(self) -> tuple[Any, ...]:
        return tuple(self.template) if _is_labelled(self.template) else ()

    @property
    def is_dialogue(self) -> bool:
        return isinstance(self.template, Mapping) and not _is_labelled(self.template)

    def places(self, label: Any = None) -> str:
        chosen = self._chosen(label)
        if self.ice_token is None:
            return ""
        if isinstance(chosen, str):
            return "text" if self.ice_token in chosen else ""
        found = {
            "items" if isinstance(item, str) else "text"
            for _, item in located(chosen)
            if self.ice_token in (item if isinstance(item, str) else item.get("prompt", ""))
        }
        return min(found, default="", key=["text", "items"].index)  # within a role's text, only text can go

    def item(self, row: Mapping[str, Any], *, ice: Shown = "", hide: str | None = None, instead: str = "") -> Shown:
        """Return the prompt that asks for the answer of `row`; of label prompts, the first.

        Raises:
            InContextError: The examples have roles and their place is inside text, or a value cannot become text.
        """
        first = next(iter(self.labels), None)
        return self._render(first, "prompt", row if hide is None else {**row, hide: instead}, ice)

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

    def _chosen(self, label: Any) -> Any:
        """Return the text or dialogue for a label."""
        if not _is_labelled(self.template):
            return self.template
        try:
            chosen = self.template[label]
        except (KeyError, TypeError):
            hint = nearest(str(label), map(str, self.labels))
            raise InContextError(
                f"{type(self).__name__}: no prompt for label {label!r} ({type(label).__name__}){hint}",
                name=str(label),
            ) from None
        return {"round": chosen} if isinstance(chosen, list) else chosen

    def _compile(self, chosen: Any, form: str, names: tuple[str, ...]) -> _Plan:
        is_ice = form.endswith("ice")
        listed: list[Item] = []
        if isinstance(chosen, str):
            listed.append(chosen)
            chosen = {}
        for name in ("round",) if is_ice else SECTIONS:
            if name in chosen:
                listed += section("ice" if is_ice else name, items_of(chosen[name]))
        return [
            (None, self._parts(item, form, names))
            if isinstance(item, str)
            else (item, self._parts(item["prompt"], form, names) if "prompt" in item else ())
            for item in listed
        ]

    def _parts(self, text: str, form: str, names: tuple[str, ...]) -> tuple[Slots, ...]:
        """Cut a text at the places of examples, and each piece where columns go."""
        pieces = [text]
        if self.ice_token is not None:
            pieces = [text.replace(self.ice_token, "")] if form.endswith("ice") else text.split(self.ice_token)
        if self.sep_token is not None and form in ("prompt", "clean ice"):
            pieces = [piece.replace(self.sep_token, "") for piece in pieces]
        return tuple([slots(piece, names, self.tokens) for piece in pieces])

    def _render(self, label: Any, form: str, row: Mapping[str, Any], ice: Shown) -> Shown:
        chosen, names = self._chosen(label), tuple(row)
        key = (label if _is_labelled(self.template) else None, form, names)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._compile(chosen, form, names)
        if isinstance(chosen, str):
            return self._joined(plan[0][1], row, ice, None)
        found = PromptList()
        for item, parts in plan:
            if item is None:
                if self.ice_token is not None and not isinstance(ice, str):
                    for number, part in enumerate(parts):
                        if number:
                            found.extend(copies(ice))
                        if part.text:
                            found.append(part.fill(row))
                else:
                    found.append(self._joined(parts, row, ice, None))
            elif parts:
                found.append({**item, "prompt": self._joined(parts, row, ice, item["role"])})
            else:
                found.append(dict(item))
        return found

    def _joined(self, parts: Sequence[Slots], row: Mapping[str, Any], ice: Shown, role: str | None) -> str:
        if len(parts) == 1:
            return parts[0].fill(row)
        if not isinstance(ice, str):
            place = "a text" if role is None else f"the prompt of role {role!r}"
            raise InContextError(
                f"{type(self).__name__}: {self.ice_token!r} is in {place}, and the worked examples have roles; put the "
                "token among the items of `begin` or `round`, or make the examples text",
                name=self.ice_token,
                path=role,
            )
        return ice.join([part.fill(row) for part in parts])

    def _problems(self, template: object, ice_token: str) -> list[Problem]:
        """Return all problems of a template."""
        if not isinstance(template, str | Mapping):
            return [Problem("template", f"template must be text or a dict, got {type(template).__name__}")]
        is_labelled = _is_labelled(template)
        prompts: list[tuple[str, Any]] = [("template", template)]
        if is_labelled and isinstance(template, Mapping):
            prompts = [(f"template[{label!r}]", chosen) for label, chosen in template.items()]
        problems: list[Problem] = []
        for place, chosen in prompts:
            if isinstance(chosen, str):
                if ice_token not in chosen:
                    problems.append(Problem(place, f"ice_token {ice_token!r} is not in {place} {chosen[:80]!r}"))
            elif isinstance(chosen, list | Mapping):
                inner = problems_of({"round": chosen} if isinstance(chosen, list) else chosen)
                if is_labelled:
                    inner = [Problem(f"{place}.{name}", f"{place}: {text}") for name, text in inner]
                problems += inner
            else:
                text = f"{place} must be text, a list of turns or a dialogue, got {type(chosen).__name__}"
                problems.append(Problem(place, text))
        return problems


def _is_labelled(template: object) -> bool:
    return isinstance(template, Mapping) and not set(template) <= set(SECTIONS)


def _doubts(template: Any, ice_token: str | None) -> Problem | None:
    """Return the part of a template that probably does something else than its author expects."""
    if _is_labelled(template):
        foreign = [key for key in template if key not in SECTIONS]
        if len(foreign) == len(template):
            return None
        names = ", ".join(f"{key!r}{nearest(str(key), SECTIONS)}" for key in foreign)
        sections = "` and `".join(key for key in template if key in SECTIONS)
        return Problem(
            str(foreign[0]), f"`{sections}` are labels here, because the template has other keys than sections: {names}"
        )
    texts = [
        repr(item[:40])
        for where, item in located(template)
        if where.startswith("round") and isinstance(item, str) and item.strip().replace(ice_token or "\0", "")
    ]
    if not texts:
        return None
    return Problem(
        "round", f"{', '.join(texts)} in `round` has no role, so it is sent before all turns; give it a role"
    )
