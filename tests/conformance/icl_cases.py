"""Helpers of cases of evaluation prompts: how values are written, and how the prompt of a case is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.prompts.evaluation import ApiMetaTemplate, InContext, MetaTemplate, PromptList
from agentkit_prompts.evaluation.prompt_list import is_marker

READER = {"input_columns": ["question"], "output_column": "answer"}


def decoded(value: Any) -> Any:
    """Read a value in the notation of cases: lists as prompt lists or tuples, dicts with keys other than strings."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__promptlist__"}:
        return PromptList(decoded(value["__promptlist__"]))
    if value.keys() == {"__tuple__"}:
        return tuple(decoded(value["__tuple__"]))
    if value.keys() == {"__pairs__"}:
        return {decoded(key): decoded(item) for key, item in value["__pairs__"]}
    return {key: decoded(item) for key, item in value.items()}


def parser_of(kind: str, meta_template: Any) -> MetaTemplate | ApiMetaTemplate:
    """Create the parser of a case."""
    return ApiMetaTemplate(meta_template, keep_text=False) if kind == "api" else MetaTemplate(meta_template)


def read_case(case: Mapping[str, Any]) -> InContext:
    """Create the evaluation of a case; its prompts are for the row and the examples of the case."""
    infer_cfg = {
        "prompt_template": decoded(case.get("template")),
        "ice_template": decoded(case.get("ice_template")),
        "retriever": case["retriever"],
        "inferencer": {"type": "PPLInferencer" if case["mode"] == "ppl" else "GenInferencer"},
    }
    if "gen_field_replace_token" in case:
        infer_cfg["inferencer"]["gen_field_replace_token"] = case["gen_field_replace_token"]
    return InContext.from_cfg(infer_cfg, case.get("reader") or READER, train=decoded(case.get("train_examples")) or ())


def without_markers(value: Any) -> Any:
    """Return a prompt list without section markers and empty texts, which do not count."""
    return [item for item in value if item != "" and not is_marker(item)] if isinstance(value, list) else value


def difference(got: Any, wanted: Any, kind: str | None) -> str | None:
    """Return the difference of a result from the expected result, or None."""
    if kind is not None and type(got).__name__ != kind:
        return f"expected a {kind}, got a {type(got).__name__}: {got!r}"
    if got != wanted:
        return f"expected {wanted!r}, got {got!r}"
    return None
