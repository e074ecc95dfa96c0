"""Merging what several prompts require of `additional_kwargs` into one JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentkit_prompts.errors import PromptError, SchemaConflict
from agentkit_prompts.schemas.check import resolve
from agentkit_prompts.schemas.params import JsonSchema, schema_faults

__all__ = ["REQUIRED_BY", "merge_schemas"]

REQUIRED_BY = "x-required-by"
"""Schema keyword that lists the prompts a property is needed by."""

_MAX_WRITTEN = 2_000
"""Nodes of a schema that are written out with its references resolved."""


def merge_schemas(schemas: Iterable[tuple[str, JsonSchema | None]]) -> JsonSchema | None:
    """Merge the additional-kwargs schemas of several prompts, each given with its prompt path.

    None merges with anything; equal properties unify (titles and descriptions do not count); a property lists the
    prompts that need it under `x-required-by`; `$defs` of the same name but another meaning are kept apart.

    Raises:
        SchemaConflict: Two prompts want the same property with different schemas; names both paths.
        PromptError: One of them is not a JSON Schema.
    """
    merged: JsonSchema | None = None
    origin: dict[str, tuple[str, Any, JsonSchema]] = {}
    required: dict[str, None] = {}
    for path, schema in schemas:
        if schema is None:
            continue
        faults = schema_faults(schema, f"the additional_kwargs_schema of {path or 'the prompt'}")
        if faults:
            raise PromptError("; ".join(faults))
        if merged is None:
            merged = {"type": "object", "properties": {}}
        root = _flatten(schema)
        change = _adopt_defs(root, merged)
        for name, item in root.get("properties", {}).items():
            owners = item.get(REQUIRED_BY) if isinstance(item, Mapping) else None
            owners = [_under(path, owner) for owner in owners] if owners else [path]
            known = origin.get(name)
            if known is None:
                origin[name] = (owners[0], item, root)
                adopted = _rename(item, change)
                merged["properties"][name] = {**(adopted if isinstance(adopted, dict) else {}), REQUIRED_BY: owners}
            else:
                before, meaning = _meaning(known[1], known[2]), _meaning(item, root)
                if before != meaning:
                    raise SchemaConflict(
                        f"additional kwarg {name!r}: {known[0] or _OWN} wants {before}, {owners[0] or _OWN} wants "
                        f"{meaning}; rename one of them or give both the same schema"
                    )
                listed = merged["properties"][name][REQUIRED_BY]
                listed.extend(owner for owner in owners if owner not in listed)
        required.update(dict.fromkeys(root.get("required", ())))
    if merged is not None and required:
        merged["required"] = list(required)
    return merged


_OWN = "the template around them"


def _under(path: str, owner: str) -> str:
    return f"{path}.{owner}" if path and owner else path or owner


def _flatten(schema: JsonSchema) -> JsonSchema:
    """Resolve a top-level `$ref`, as pydantic writes for recursive models, and call `definitions` `$defs`."""
    if "definitions" in schema:
        renamed = _rename({key: value for key, value in schema.items() if key != "definitions"}, _modern)
        schema = {**renamed, "$defs": {**_rename(schema["definitions"], _modern), **renamed.get("$defs", {})}}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        return {**resolve(reference, schema), "$defs": schema.get("$defs", {})}
    options = schema.get("anyOf") or schema.get("oneOf")
    if options and "properties" not in schema:  # Optional and Union at the root: what every alternative needs
        defs = schema.get("$defs", {})
        found = [_flatten({"$defs": defs, **option}) for option in options if isinstance(option, Mapping)]
        objects = [option for option in found if "properties" in option]
        if objects:
            optional = len(objects) < len(options)
            needed = [set() if optional else set(option.get("required", ())) for option in objects]
            properties = {name: item for option in reversed(objects) for name, item in option["properties"].items()}
            required = sorted(set.intersection(*needed))
            return {"properties": properties, "required": required, "$defs": defs}
    return schema


def _modern(reference: str) -> str:
    return reference.replace("#/definitions/", "#/$defs/", 1) if reference.startswith("#/definitions/") else reference


def _adopt_defs(schema: JsonSchema, merged: JsonSchema) -> Callable[[str], str]:
    """Copy the definitions of `schema` into `merged` under names that do not collide; return how references change."""
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    ours = merged.get("$defs", {})
    for name in schema.get("$defs", {}):
        candidate, number = name, 1
        while candidate in taken or (
            candidate in ours
            and _meaning({"$ref": f"#/$defs/{candidate}"}, merged) != _meaning({"$ref": f"#/$defs/{name}"}, schema)
        ):
            number += 1
            candidate = f"{name}__{number}"
        renamed[name] = candidate
        taken.add(candidate)

    def change(reference: str) -> str:
        name = reference.removeprefix("#/$defs/")
        return f"#/$defs/{renamed[name]}" if name != reference and name in renamed else reference

    fresh = {new: _rename(schema["$defs"][old], change) for old, new in renamed.items() if new not in ours}
    if fresh:
        merged["$defs"] = {**ours, **fresh}
    return change


def _rename(node: Any, change: Callable[[str], str]) -> Any:
    """Return a schema with its references changed."""
    if isinstance(node, Mapping):
        return {
            key: change(value) if key == "$ref" and isinstance(value, str) else _rename(value, change)
            for key, value in node.items()
        }
    return [_rename(item, change) for item in node] if isinstance(node, list | tuple) else node


_ANNOTATIONS = frozenset({"title", "description", "examples", "$defs", REQUIRED_BY})


def _meaning(node: Any, root: JsonSchema) -> str:
    """Return canonical JSON of a schema with references resolved, annotations left out and cycles cut.

    Where resolving would write too much, since every level refers to the next one twice, definitions stay apart, by
    the order in which they are met.
    """
    written = 0

    def expand(item: Any, path: tuple[str, ...], as_names: bool) -> Any:
        nonlocal written
        written += 1
        if written > _MAX_WRITTEN:
            raise OverflowError
        if isinstance(item, Mapping):
            reference = item.get("$ref")
            if isinstance(reference, str) and not as_names:
                if reference in path:
                    return {"$cycle": len(path) - path.index(reference)}
                beside = {key: value for key, value in item.items() if key != "$ref"}
                target = expand(resolve(reference, root), (*path, reference), False)
                return {**target, **expand(beside, path, False)}
            return _entries(item, as_names, lambda value, names: expand(value, path, names))
        if isinstance(item, list | tuple):
            return [expand(value, path, False) for value in item]
        return item

    met: dict[str, int] = {}

    def number(item: Any, as_names: bool) -> Any:
        if isinstance(item, Mapping):
            entries = _entries(item, as_names, number)
            reference = item.get("$ref")
            if isinstance(reference, str) and not as_names:
                entries["$ref"] = met.setdefault(reference, len(met))
            return entries
        return [number(value, False) for value in item] if isinstance(item, list | tuple) else item

    try:
        found = expand(node, (), False)
    except (OverflowError, RecursionError):
        found = [number(node, False)]
        while len(met) >= len(found):
            found.append(number(resolve(list(met)[len(found) - 1], root), False))
    return json.dumps(found, sort_keys=True, ensure_ascii=False, default=str)


def _entries(item: Mapping[str, Any], as_names: bool, inner: Callable[[Any, bool], Any]) -> dict[str, Any]:
    return {
        key: sorted(value, key=str)
        if key == "required" and not as_names
        else inner(value, not as_names and key in ("properties", "patternProperties"))
        for key, value in item.items()
        if as_names or key not in _ANNOTATIONS
    }
