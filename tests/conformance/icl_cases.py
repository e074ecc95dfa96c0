"""What cases of evaluation prompts share: how values are written down, and how a prompt is made from a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.prompts.evaluation import ApiMetaTemplate, InContext, MetaTemplate, PromptList
from agentkit_prompts.evaluation.prompt_list import is_marker

READER = {"input_columns": ["question"], "output_column": "answer"}


def decoded(value: Any) -> Any:
    """Read a value as cases write it: lists that are prompt lists or tuples, dicts with keys that are no strings."""
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
    """Make the parser of a case."""
    return ApiMetaTemplate(meta_template, keep_text=False) if kind == "api" else MetaTemplate(meta_template)


def read_case(case: Mapping[str, Any]) -> InContext:
    """Make the evaluation that a case describes; its prompts are made for the row and the examples it names."""
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
    """Say how a result differs from what is expected, or None."""
    if kind is not None and type(got).__name__ != kind:
        return f"expected a {kind}, got a {type(got).__name__}: {got!r}"
    if got != wanted:
        return f"expected {wanted!r}, got {got!r}"
    return None
