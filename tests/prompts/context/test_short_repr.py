"""What a representation shows of long values: all up to a length; beyond it both ends, the first items, or the size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

from agentkit_prompts.context.short_repr import short_repr


@dataclass(repr=False)
class Box:
    value: Any

    __repr__ = short_repr


class Shown:
    """Something whose own representation has a length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __repr__(self) -> str:
        return "s" * self.length


def shown(value: Any) -> str:
    return repr(Box(value)).removeprefix("Box(value=").removesuffix(")")


@pytest.mark.parametrize(
    ("whole", "longer", "cut"),
    [
        ("a" * 500 + "b" * 500, "a" * 500 + "-" + "b" * 500, repr("a" * 500 + "..." + "b" * 500)),
        (["a" * 50 + "b" * 50], ["a" * 50 + "-" + "b" * 50], repr(["a" * 50 + "..." + "b" * 50])),
        (b"x" * 1_000, b"x" * 1_001, "<1,001 bytes>"),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7], "[1, 2, 3, 4, 5, 6, ...]"),
        ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 7), "(1, 2, 3, 4, 5, 6, ...)"),
        (dict.fromkeys("fedcba", 1), dict.fromkeys("gfedcba", 1), f"{dict.fromkeys('gfedcb', 1)!r:.47}, ...}}"),
        ({1: {2: {3: {}}}}, {1: {2: {3: {4: 5}}}}, "{1: {2: {3: {...}}}}"),
        (Shown(2_000), Shown(2_001), "s" * 1_000 + "..."),
    ],
    ids=["text", "inner text", "bytes", "list", "tuple", "mapping", "levels", "other"],
)
def test_a_value_is_shown_whole_up_to_a_length_and_cut_beyond(whole: Any, longer: Any, cut: str) -> None:
    assert shown(whole) == repr(whole)
    assert shown(longer) == cut


def test_a_mapping_of_any_kind_is_shown_in_the_order_that_it_has() -> None:
    mapping: Mapping[str, int] = MappingProxyType({"b": 1, "a": 2})
    assert shown(mapping) == "{'b': 1, 'a': 2}"


def test_what_has_no_representation_is_shown_by_its_class() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert "Broken instance" in shown(Broken())
