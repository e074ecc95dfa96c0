"""A module has a unique name: in one package no two folders have a module of the same name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.house.packages import PACKAGES


def shared_names(package: Path) -> dict[str, list[str]]:
    """Return the names of several modules with their paths; a folder may contain a module with its own name."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        if path.stem != "__init__" and "versions" not in path.parts:
            places[path.stem].append(path)
    for folder in {path.parent for path in package.rglob("*.py")} - {package}:
        if folder / f"{folder.name}.py" not in places[folder.name]:
            places[folder.name].append(folder)
    return {
        name: [path.relative_to(package).as_posix() for path in paths]
        for name, paths in places.items()
        if len(paths) > 1
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_two_folders_of_a_package_have_a_module_of_the_same_name(package: Path) -> None:
    named = [f"{name} ({', '.join(paths)})" for name, paths in sorted(shared_names(package).items())]
    assert not named, f"name each module after what it holds, so that its bare name is clear: {'; '.join(named)}"


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    for name in ("a/same.py", "b/same.py", "c/c.py", "c/__init__.py", "d/deep/a.py", "b/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert shared_names(tmp_path) == {"same": ["a/same.py", "b/same.py"], "a": ["d/deep/a.py", "a"]}
