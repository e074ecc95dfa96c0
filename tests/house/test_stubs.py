"""The table of a door, which Python reads, and its stub, which type checkers read, list the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.packages import PACKAGES, module_name

STUBS = sorted(stub for package in PACKAGES for stub in package.rglob("*.pyi"))


def declared(stub: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import of a stub."""
    for node in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for alias in node.names:
                names = import_module(node.module).__all__ if alias.name == "*" else [alias.name]
                yield from ((node.module, name) for name in names)


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: module_name(stub.with_suffix(".py")))
def test_a_stub_declares_the_names_that_its_door_exports(stub: Path) -> None:
    door = import_module(module_name(stub.with_suffix(".py")))
    homes = {name: module for module, name in declared(stub)}
    assert sorted({*door.__all__} - {*homes}) == [], f"names of the table without an import in {stub.name}"
    assert sorted({*homes} - {*door.__all__}) == [], f"imports of {stub.name} without a name in the table"
    for name, module in homes.items():
        assert getattr(door, name) is getattr(import_module(module), name)
