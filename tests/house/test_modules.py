"""The habits of the house that a machine can check, module by module."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.packages import MODULES, PACKAGES, module_name
from tests.paths import ROOT

LINES = 450


def tracked() -> list[Path]:
    """Files of the repository as git knows them, or none where it is not a git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in done.stdout.split("\0") if name]


def public_names(path: Path) -> list[str] | None:
    """What `__all__` lists, when the module writes it out."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value)) if isinstance(node.value, ast.List | ast.Tuple) else None
    return None


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_ships_its_types(package: Path) -> None:
    assert (package / "py.typed").is_file()
    assert (package / "__init__.py").is_file()


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_opens_with_what_it_is_for_and_fits_in_one_mind(path: Path) -> None:
    source = path.read_text("utf-8")
    if not source.strip():  # an empty `__init__.py` has nothing to say
        return
    assert ast.get_docstring(ast.parse(source)), "no module docstring"
    assert len(source.splitlines()) <= LINES, f"over {LINES} lines: move one of its concerns into a file of its own"


@pytest.mark.parametrize("path", [path for path in MODULES if public_names(path) is not None], ids=module_name)
def test_public_names_are_unique_and_importable(path: Path) -> None:
    listed = public_names(path)
    assert listed is not None
    assert len(listed) == len(set(listed))  # ruff keeps them sorted
    module = importlib.import_module(module_name(path))
    missing = [name for name in listed if not hasattr(module, name)]
    assert not missing


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_every_module_says_what_is_public(path: Path) -> None:
    if (path.name.startswith("_") and path.name != "__init__.py") or "migrations" in path.parts:
        return
    source = path.read_text("utf-8")
    assert "__all__" in source or not ast.parse(source).body[1:], "no __all__"


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    own = re.compile(
        "|".join([r"/wor" + r"k/\w", r"/ro" + r"ot/", r"/ho" + r"me/[a-z]", r"/Us" + r"ers/[a-z]", r"/tm" + r"p/\w"])
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.is_file() and path.suffix not in {".png", ".jpg", ".wav", ".mp4", ".db"}
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1)
        if own.search(line)
    ]
    assert not found


def test_a_script_of_the_house_can_be_run_from_anywhere(tmp_path: Path) -> None:
    for script in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
        source = script.read_text("utf-8")
        assert source.startswith("#!/usr/bin/env bash\n")
        assert script.stat().st_mode & 0o111, f"{script.name} is not executable"
        assert 'cd "$(dirname "${BASH_SOURCE[0]}")/.."' in source
        subprocess.run(["bash", "-n", str(script)], cwd=tmp_path, check=True)
