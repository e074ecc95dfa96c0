"""`StrictLoader`: a YAML loader that reads `no`, dates and times as text, and rejects duplicate keys and aliases.

Import this module inside the function that uses it, because it imports yaml, which is slow.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import yaml

from agentkit_prompts.limits import MAX_DEPTH, MAX_DIGITS

_INT, _FLOAT, _BOOL = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool"
_DROPPED = ("tag:yaml.org,2002:timestamp", _BOOL)


class StrictLoader(yaml.SafeLoader):
    """A safe loader that reads `no`, dates and times as text, and rejects duplicate keys and aliases."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.check_event(yaml.AliasEvent):
            # A short file with nested aliases can describe data of exponential size.
            self.refuse_event("aliases are not allowed: repeat the value")
        if self.depth > MAX_DEPTH:
            self.refuse_event(f"nests deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def fetch_more_tokens(self) -> Any:
        try:
            return super().fetch_more_tokens()
        except (OverflowError, ValueError):
            # Raised for an escape without a character, such as `\UFFFFFFFF`, and for a version of 5,000 digits.
            raise yaml.MarkedYAMLError(None, None, "a number is too large", self.get_mark()) from None

    def refuse_event(self, reason: str) -> None:
        """Raise an error with `reason` at the place of the next event."""
        event: Any = self.get_event()  # type: ignore[no-untyped-call]  # yaml has no type for it
        raise yaml.MarkedYAMLError(None, None, reason, event.start_mark)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        # An AttributeError is raised for text that is no timestamp.
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            # The message of the cause can contain the value, which is a secret in some files.
            reason = f"the value is not a {node.tag.rpartition(':')[2][:40]}"
            raise yaml.MarkedYAMLError(None, None, reason, node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            counted = Counter(str(key.value) for key, _ in node.value)
            twice = ", ".join([key[:80] for key, count in counted.items() if count > 1][:10])
            reason = f"the key {twice} is duplicated"
            raise yaml.MarkedYAMLError(None, None, reason, node.start_mark)
        return mapping

    def construct_number(self, node: Any) -> Any:
        """Return a number, or the text of a time such as `12:30`, which YAML 1.1 reads as a number of base 60."""
        text = self.construct_scalar(node)
        if ":" in text:
            return text
        if len(text) > MAX_DIGITS:
            reason = f"a number has at most {MAX_DIGITS:,} digits: put text in quotes"
            raise yaml.MarkedYAMLError(None, None, reason, node.start_mark)
        if node.tag == _FLOAT:
            return self.construct_yaml_float(node)
        return self.construct_yaml_int(node)


StrictLoader.add_constructor(_INT, StrictLoader.construct_number)
StrictLoader.add_constructor(_FLOAT, StrictLoader.construct_number)
StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _DROPPED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
StrictLoader.add_implicit_resolver(_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF"))
