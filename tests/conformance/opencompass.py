"""Cases of OpenCompass: templates, retrievers, readers, and the requests of completion models and APIs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentkit.prompts.evaluation import InContextWarning, PromptList, PromptTemplate, RawPromptTemplate, safe_format
from tests.conformance.icl_cases import decoded, difference, parser_of, read_case, without_markers


def check(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the id of a required case, and the difference of our result."""
    if case.get("required"):
        try:
            with warnings.catch_warnings(action="ignore", category=InContextWarning):  # tested elsewhere
                got = RUN[case["op"]](case)
        except Exception as error:
            yield case["id"], f"{type(error).__name__}: {error}"
            return
        wanted = decoded(case["expect"]["output"])
        if case["stage"] in ("promptlist", "ice"):
            kind = case.get("output_type")
            problem = difference(type(got).__name__, kind, None) if kind else None
            got, wanted = without_markers(got), without_markers(wanted)
            yield case["id"], problem or difference(got, wanted, None)
        else:
            yield case["id"], difference(got, wanted, case.get("output_type"))


def template_of(case: Mapping[str, Any]) -> PromptTemplate | RawPromptTemplate:
    """Create the template of a case that has only a template."""
    settings = dict(decoded(case["template"]))
    kind = settings.pop("type", "PromptTemplate")
    return RawPromptTemplate(**settings) if kind == "RawPromptTemplate" else PromptTemplate(**settings)


def pipeline(case: Mapping[str, Any]) -> Any:
    """Return the prompt of a row, its examples alone, or the request of a model."""
    rows = decoded(case["test_examples"]) if "test_examples" in case else [decoded(case["example"])]
    number = case.get("index", 0)
    # Examples alone need no prompt with a place for them.
    anywhere = {"template": {"round": ["</E>"]}, "ice_token": "</E>"}
    icl = read_case({**case, "template": anywhere} if case["stage"] == "ice" else case)
    ids = case["ice_ids"] if "ice_ids" in case else icl.ids(rows)[number]
    if case["stage"] == "ice":
        return icl.examples(ids)
    label = case.get("label")
    if case["stage"] == "final":
        return icl.final(rows[number], parser_of(case["parser"], decoded(case["meta_template"])), ids, label)
    if case.get("remain_sep"):
        return icl.prompt_template.label_item(rows[number], label, ice=icl.examples(ids), keep_separator=True)
    return icl.prompt(rows[number], ids, label)


def item(case: Mapping[str, Any]) -> Any:
    """Return the item of a row with a template. The replacement of the examples is a template: it is filled first."""
    row, hide = decoded(case["example"]), case.get("output_field")
    instead = case.get("output_field_replace_token", "")
    shown = row if hide is None else {**row, hide: instead}
    ice = decoded(case.get("ice_field_replace_token", ""))
    ice = ice.format(shown) if isinstance(ice, PromptList) else safe_format(ice, shown)
    return template_of(case).item(row, ice=ice, hide=hide, instead=instead)


def ice_item(case: Mapping[str, Any]) -> Any:
    """Return a row as an example, with a template alone."""
    return template_of(case).ice_item(decoded(case["example"]), case.get("label"))


def label_item(case: Mapping[str, Any]) -> Any:
    """Return the text that is scored for a label, with a template alone."""
    return template_of(case).label_item(
        decoded(case["example"]),
        case.get("label"),
        ice=decoded(case.get("ice", "")),
        keep_separator=case.get("remain_sep", False),
    )


def parse(case: Mapping[str, Any]) -> Any:
    """Parse a prompt with a meta template alone."""
    return parser_of(case["parser"], decoded(case["meta_template"])).parse(decoded(case["prompt"]), case["mode"])


def labels(case: Mapping[str, Any]) -> list[Any]:
    """Return the scored texts."""
    return read_case(case).labels([decoded(case["example"])])


def retrieved(case: Mapping[str, Any]) -> list[list[int]]:
    """Return the ids of the examples of each row."""
    anywhere = {"template": {"round": ["</E>"]}, "ice_token": "</E>"}
    icl = read_case({**case, "template": anywhere, "ice_template": {"template": "x"}})
    return [list(ids) for ids in icl.ids(decoded(case["test_examples"]))]


RUN = {
    "pipeline": pipeline,
    "item": item,
    "ice_item": ice_item,
    "label_item": label_item,
    "parse": parse,
    "labels": labels,
    "retrieve": retrieved,
    "safe_format": lambda case: safe_format(case["text"], decoded(case["example"])),
}
