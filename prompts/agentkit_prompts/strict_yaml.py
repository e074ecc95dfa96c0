"""A YAML loader in which `no`, dates and times are text, keys come once, and nothing is written by alias."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

__all__ = ["strict_loader"]

_MAX_DEPTH = 64
_MAX_DIGITS = 4_000
"""Longest number, in characters."""


@cache
def strict_loader() -> Any:
    """Make a safe loader in which `no`, dates and times are text, keys come once, and nothing is written by alias."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            is_alias = self.check_event(yaml.AliasEvent)
            if is_alias or self.depth > _MAX_DEPTH:
                what = "aliases are not allowed: write it out" if is_alias else f"nests deeper than {_MAX_DEPTH} levels"
                event: Any = self.get_event()  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(None, None, what, event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep=deep)
            except (ArithmeticError, LookupError, ValueError):  # which may show the value: a key, in some files
                what = f"the value is no {node.tag.rpartition(':')[2][:40]}"
                raise yaml.MarkedYAMLError(None, None, what, node.start_mark) from None

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) < len(node.value):
                counted = Counter(str(key.value) for key, _ in node.value)
                twice = ", ".join([key[:80] for key, count in counted.items() if count > 1][:10])
                what = f"the key {twice} is here twice, with one value lost"
                raise yaml.MarkedYAMLError(None, None, what, node.start_mark)
            return mapping

        def construct_number(self, node: Any) -> Any:
            text = self.construct_scalar(node)
            if ":" in text:  # a time; YAML 1.1 reads it as a number of base 60, slower with every digit
                return text
            if len(text) > _MAX_DIGITS:
                what = f"a number has at most {_MAX_DIGITS:,} digits: quote what is text"
                raise yaml.MarkedYAMLError(None, None, what, node.start_mark)
            is_float = node.tag == "tag:yaml.org,2002:float"
            return self.construct_yaml_float(node) if is_float else self.construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_number)
    dropped = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
    )
    return Loader
