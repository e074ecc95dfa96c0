"""Merge of the `additional_kwargs` schemas of several prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from agentkit_prompts.errors import PromptError, SchemaConflict, start_of
from agentkit_prompts.invalid_values import place_of
from agentkit_prompts.limits import MAX_MESSAGE_CHARS
from agentkit_prompts.schemas.keywords import DATA, NAMED, as_object, rewritten
from agentkit_prompts.schemas.params import JsonSchema, PlacedProblem, schema_problems
from agentkit_prompts.schemas.references import resolve

REQUIRED_BY = "x-required-by"
"""Schema keyword that lists the paths of the prompts that require a property."""

_MAX_WRITTEN = 200
"""Maximum nodes of a schema in an error message, with its references resolved."""


def merge_schemas(schemas: Iterable[tuple[str, JsonSchema | None]]) -> JsonSchema | None:
    """Merge the additional-kwargs schemas of several prompts, each after the path of its prompt.

    The value of `x-required-by` in each property is the list of the prompts that require the property. Two schemas of
    one property must be equal, except for annotations such as titles. Different definitions with one name in `$defs`
    get different names. Prompts without a schema are ignored; the result is None if no prompt has a schema.

    Raises:
        SchemaConflict: Two prompts require the same property with different schemas; names both paths.
        PromptError: A schema is not a JSON Schema.
    """
    merging = _Merging()
    for path, schema in schemas:
        if schema is not None:
            merging.add(path, schema)
    return merging.result()


class _Origin(NamedTuple):
    """The first prompt that requires a property, and the schema of the property in its document."""

    owner: str
    """Path of the prompt."""
    schema: Any
    document: JsonSchema
    """Schema of the prompt, to which references in `schema` refer."""


class _Merging:
    """Merged schema, to which schemas of prompts are added one after the other."""

    def __init__(self) -> None:
        self._merged: JsonSchema | None = None
        self._comparison = _Comparison()
        self._origins: dict[str, _Origin] = {}
        self._required: dict[str, None] = {}

    def result(self) -> JsonSchema | None:
        """Return the merged schema; None if no prompt has one."""
        if self._merged is not None and self._required:
            self._merged["required"] = list(self._required)
        return self._merged

    def add(self, path: str, schema: JsonSchema) -> None:
        """Add the schema of the prompt at `path`."""
        problems = schema_problems(schema) or list(_owner_problems(schema))
        if problems:
            raise _invalid(path, problems)
        if self._merged is None:
            self._merged = {"type": "object", "properties": {}}
        document = _flatten(schema)
        change = _adopt_defs(document, self._merged, self._comparison)
        for name, item in document.get("properties", {}).items():
            owners = _owners(item, path)
            if name in self._origins:
                self._unify(name, _Origin(owners[0], item, document), owners)
            else:
                self._origins[name] = _Origin(owners[0], item, document)
                self._merged["properties"][name] = {**as_object(_with_references(item, change)), REQUIRED_BY: owners}
        self._required.update(dict.fromkeys(document.get("required", ())))

    def _unify(self, name: str, other: _Origin, owners: list[str]) -> None:
        """Add prompts to the list of a property that another prompt requires, too, with an equal schema."""
        assert self._merged is not None
        origin = self._origins[name]
        if not self._comparison.same(origin.schema, origin.document, other.schema, other.document):
            raise _conflict(name, origin, other)
        listed = self._merged["properties"][name][REQUIRED_BY]
        listed.extend(owner for owner in owners if owner not in listed)


def _owners(item: Any, path: str) -> list[str]:
    """Return the prompts that require a property: the prompts listed by an inner tree, or the prompt at `path`."""
    owners = as_object(item).get(REQUIRED_BY)
    if not owners:
        return [path]
    return [".".join(filter(None, (path, owner))) for owner in owners]


def _conflict(name: str, first: _Origin, second: _Origin) -> SchemaConflict:
    problems = [(origin.owner, _shown(origin.schema, origin.document)) for origin in (first, second)]
    both = ", ".join([f"{owner or _OWN} requires {schema}" for owner, schema in problems])
    message = f"additional kwarg {name!r}: {both}; rename one of them or use the same schema for both"
    return SchemaConflict(message, name=name, problems=problems)


def _invalid(path: str, problems: list[PlacedProblem]) -> PromptError:
    where = f"the additional_kwargs_schema of {path or 'the prompt'}"
    texts = [" ".join([".".join(filter(None, (where, place))), problem]) for place, problem in problems]
    error = PromptError("; ".join(texts), problems=problems)
    error.prompt = path
    return error


def _owner_problems(schema: JsonSchema) -> Iterator[PlacedProblem]:
    for name, item in schema.get("properties", {}).items():
        owners = as_object(item).get(REQUIRED_BY, ())
        if not isinstance(owners, list | tuple) or not all(isinstance(owner, str) for owner in owners):
            yield place_of(["properties", str(name), REQUIRED_BY]), "must be a list of prompt paths"


_OWN = "the template around them"


def _flatten(schema: JsonSchema) -> JsonSchema:
    """Return a schema with its properties at the root: a reference or alternatives at the root are resolved."""
    if "definitions" in schema:
        renamed = dict(_with_references(schema, _modern))
        definitions = {**renamed.pop("definitions"), **renamed.get("$defs", {})}
        schema = {**renamed, "$defs": definitions}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        # pydantic writes a reference at the root for a recursive model.
        return {**resolve(reference, schema), "$defs": schema.get("$defs", {})}
    options = schema.get("anyOf") or schema.get("oneOf")
    if options and "properties" not in schema:
        return _flat_options(schema, options)
    return schema


def _flat_options(schema: JsonSchema, options: Sequence[Any]) -> JsonSchema:
    """Return one object for alternatives at the root, as `Optional` and `Union` write them."""
    definitions = schema.get("$defs", {})
    flat = [_flatten({"$defs": definitions, **as_object(option)}) for option in options]
    objects = [option for option in flat if "properties" in option]
    if not objects:
        return schema
    properties: dict[str, Any] = {}
    for option in reversed(objects):
        properties |= option["properties"]
    # Properties that every alternative requires are required; an alternative that is not an object requires no
    # property.
    required = set.intersection(*[set(option.get("required", ())) for option in flat])
    return {"properties": properties, "required": sorted(required), "$defs": definitions}


def _modern(reference: str) -> str:
    if reference.startswith("#/definitions/"):
        return reference.replace("#/definitions/", "#/$defs/", 1)
    return reference


def _free_names(names: Iterable[str], collides: Callable[[str, str], bool]) -> dict[str, str]:
    """Return new names by their old names. If a name collides, all names get the same number, such as `Page__2`."""
    number, renamed = 1, {name: name for name in names}
    while any(collides(old, new) for old, new in renamed.items()):
        number += 1
        renamed = {name: f"{name}__{number}" for name in renamed}
    return renamed


def _adopt_defs(schema: JsonSchema, merged: JsonSchema, comparison: _Comparison) -> Callable[[str], str]:
    """Copy the definitions of `schema` into `merged`, and return the function that changes references to the copies.

    If `merged` has a different definition with one of the names, all copies get new names.
    """
    definitions, adopted = schema.get("$defs", {}), merged.get("$defs", {})

    def collides(old: str, new: str) -> bool:
        return new in adopted and not comparison.same(adopted[new], merged, definitions[old], schema)

    renamed = _free_names(definitions, collides)

    def change(reference: str) -> str:
        return _renamed_reference(reference, renamed)

    fresh = {new: _with_references(definitions[old], change) for old, new in renamed.items() if new not in adopted}
    if fresh:
        merged["$defs"] = {**adopted, **fresh}
    return change


def _renamed_reference(reference: str, renamed: Mapping[str, str]) -> str:
    """Return a reference to a definition, or to a part of a definition, with the new name of the definition."""
    if not reference.startswith("#/$defs/"):
        return reference
    name, slash, rest = reference.removeprefix("#/$defs/").partition("/")
    new = renamed.get(name.replace("~1", "/").replace("~0", "~"))
    if new is None:
        return reference
    return f"#/$defs/{new.replace('~', '~0').replace('/', '~1')}{slash}{rest}"


def _with_references(schema: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a schema in which `change` replaces each `$ref`."""

    def changed(node: dict[str, Any]) -> dict[str, Any]:
        if isinstance(reference := node.get("$ref"), str):
            node["$ref"] = change(reference)
        return node

    return rewritten(schema, changed)


_ANNOTATIONS = frozenset({"title", "description", "examples", "$defs", REQUIRED_BY})


_Key: TypeAlias = tuple[int, int]
"""The `id` of a document, and the `id` of a part of this document."""


class _Comparison:
    """Comparison of parts of schemas by their meaning: references are followed, annotations are ignored.

    Parts that are assumed to be equal form a set (union-find), so that two parts are compared once, and the comparison
    of recursive parts ends: they are equal unless a difference is found.
    """

    def __init__(self) -> None:
        self._above: dict[_Key, _Key] = {}
        """Parent part of each part in the same set; the root of a set has no parent."""
        self._sizes: dict[_Key, int] = {}
        """Number of the parts of a set, by its root."""
        self._objects: dict[_Key, tuple[Any, Any]] = {}
        """Documents and parts, kept alive so that no other object gets their `id`."""

    def same(self, part: Any, root: JsonSchema, other: Any, other_root: JsonSchema) -> bool:
        """True if `part` of the document `root` has the same meaning as `other` of the document `other_root`."""
        merges: list[tuple[_Key, _Key]] = []
        waiting: list[tuple[Any, Any]] = [(part, other)]
        while waiting:
            node, other_node = waiting.pop()
            node, key = self._followed(node, root)
            other_node, other_key = self._followed(other_node, other_root)
            if not self._join(key, other_key, merges):
                # The parts are equal, or an outer iteration compares them.
                continue
            outline, other_outline = _outline(node), _outline(other_node)
            if outline.label != other_outline.label:
                for smaller, larger in reversed(merges):
                    del self._above[smaller]
                    self._sizes[larger] -= self._sizes[smaller]
                return False
            waiting += zip(outline.parts, other_outline.parts, strict=True)
        return True

    def _followed(self, node: Any, root: JsonSchema) -> tuple[Any, _Key]:
        """Return the target of the `$ref` of a part, merged with the keywords next to the `$ref`, and its key.

        A part without a `$ref` is its own target.
        """
        first, rules = node, dict[str, Any]()
        seen: set[int] = set()
        while isinstance(node, Mapping) and _is_inside(node.get("$ref")) and id(node) not in seen:
            seen.add(id(node))
            beside = {key: value for key, value in node.items() if key not in _ANNOTATIONS and key != "$ref"}
            rules = {**beside, **rules}
            node = resolve(node["$ref"], root)
        if not rules:
            return node, self._key(root, node)
        return {**node, **rules}, self._key(root, first)

    def _key(self, root: JsonSchema, node: Any) -> _Key:
        key = (id(root), id(node))
        self._objects[key] = (root, node)
        return key

    def _join(self, key: _Key, other_key: _Key, merges: list[tuple[_Key, _Key]]) -> bool:
        """Merge the sets of two parts, and record the merge in `merges`; return False if they are in one set."""
        smaller, larger = self._top(key), self._top(other_key)
        if smaller == larger:
            return False
        if self._sizes.setdefault(smaller, 1) > self._sizes.setdefault(larger, 1):
            smaller, larger = larger, smaller
        # Attach the smaller set to the larger set, so that the root of a set is found in few steps.
        self._above[smaller] = larger
        self._sizes[larger] += self._sizes[smaller]
        merges.append((smaller, larger))
        return True

    def _top(self, key: _Key) -> _Key:
        while key in self._above:
            key = self._above[key]
        return key


class _Outline(NamedTuple):
    """A part of a schema, split into its own content and its inner parts."""

    label: str
    """JSON text of the part without its inner parts."""
    parts: list[Any]
    """The inner parts, in an order that depends only on the label."""


def _outline(node: Any) -> _Outline:
    """Return the outline of a part; annotations are left out."""
    if isinstance(node, list | tuple):
        return _Outline(f"{len(node)} items", list(node))
    if not isinstance(node, Mapping):
        return _Outline(_text(node), [])
    label: dict[str, Any] = {}
    parts: list[Any] = []
    for keyword in sorted(node.keys() - _ANNOTATIONS):
        value = node[keyword]
        # The types of values are checked, because an unknown keyword can contain an object of any form.
        if keyword == "required" and isinstance(value, list | tuple):
            label[keyword] = sorted(value, key=str)
        elif keyword in NAMED and isinstance(value, Mapping):
            label[keyword] = sorted(value)
            parts += [value[name] for name in sorted(value)]
        elif keyword in DATA:
            label[keyword] = value
        else:
            label[keyword] = None
            parts.append(value)
    return _Outline(_text(label), parts)


def _is_inside(reference: object) -> TypeGuard[str]:
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _shown(node: Any, root: JsonSchema) -> str:
    """Return the JSON text of a schema for an error message, shortened, with its references resolved."""
    return start_of(_text(_Expansion(root).expand(node, ())), MAX_MESSAGE_CHARS)


class _Expansion:
    """Resolver of the references of a schema for an error message; after `_MAX_WRITTEN` nodes, `...` replaces nodes."""

    def __init__(self, root: JsonSchema) -> None:
        self._root = root
        self._nodes_left = _MAX_WRITTEN

    def expand(self, node: Any, path: tuple[str, ...]) -> Any:
        """Return a node with its references resolved; references in `path`, which led to the node, stay."""
        self._nodes_left -= 1
        if isinstance(node, list | tuple):
            return [self.expand(item, path) for item in node[:_MAX_WRITTEN]]
        if not isinstance(node, Mapping):
            return node
        # A message shows a part of a large schema.
        if self._nodes_left < 0:
            return {"...": "..."}
        return self._expand_mapping(node, path)

    def _expand_mapping(self, node: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        reference = node.get("$ref")
        if not _is_inside(reference) or reference in path:
            return self._expand_keywords(node, path)
        target = self.expand(resolve(reference, self._root), (*path, reference))
        return {**target, **self._expand_keywords({key: node[key] for key in node if key != "$ref"}, path)}

    def _expand_keywords(self, node: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for keyword in [keyword for keyword in node if keyword not in _ANNOTATIONS]:
            value = node[keyword]
            if keyword in DATA:
                result[keyword] = value
            elif keyword in NAMED and isinstance(value, Mapping):
                result[keyword] = {name: self.expand(item, path) for name, item in value.items()}
            else:
                result[keyword] = self.expand(value, path)
        return result
