"""A YAML loader in which `no` is text, dates are text, keys come once, and nothing is written by alias."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

__all__ = ["strict_loader"]

_MAX_DEPTH = 64


@cache
def strict_loader() -> Any:
    """Make a safe loader in which `no` is text, dates are text, keys come once, and nothing is written by alias."""
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

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) < len(node.value):
                what = "a key is here twice, with one value lost"
                raise yaml.MarkedYAMLError(None, None, what, node.start_mark)
            return mapping

    dropped = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")
    )
    return Loader
