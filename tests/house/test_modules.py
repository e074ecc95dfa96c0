"""The habits of the house that a machine can check, module by module."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.packages import MODULES, PACKAGES, module_name, parsed
from tests.paths import ROOT, SCRIPTS

LINES = 450


def tracked() -> list[Path]:
    """Files of the repository as git knows them, or none where it is not a git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in done.stdout.split("\0") if name]


def public_names(path: Path) -> list[str] | None:
    """What `__all__` lists, when the module writes it out."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value)) if isinstance(node.value, ast.List | ast.Tuple) else None
    return None


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_ships_its_types(package: Path) -> None:
    assert (package / "py.typed").is_file()
    assert (package / "__init__.py").is_file()


def test_a_module_opens_with_what_it_is_for_and_fits_in_one_mind() -> None:
    written = [path for path in MODULES if path.read_bytes().strip()]  # an empty `__init__.py` has nothing to say
    assert [module_name(path) for path in written if not ast.get_docstring(parsed(path))] == []
    long = [module_name(path) for path in written if len(path.read_text("utf-8").splitlines()) > LINES]
    assert not long, f"over {LINES} lines: move one of its concerns into a file of its own"


def test_public_names_are_unique_and_importable() -> None:
    listed = {module_name(path): names for path in MODULES if (names := public_names(path)) is not None}
    assert len(listed) > 400
    assert [name for name, names in listed.items() if len(names) != len(set(names))] == []  # ruff keeps them sorted
    missing = [
        f"{name}.{each}" for name, names in listed.items() for each in names if not hasattr(import_module(name), each)
    ]
    assert not missing


def test_every_module_says_what_is_public() -> None:
    silent = [
        module_name(path)
        for path in MODULES
        if (not path.name.startswith("_") or path.name == "__init__.py") and "migrations" not in path.parts
        if "__all__" not in path.read_text("utf-8") and parsed(path).body[1:]
    ]
    assert not silent, "no __all__"


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
    for script in [*SCRIPTS, ROOT / ".ci" / "run"]:
        source = script.read_text("utf-8")
        assert source.startswith("#!/usr/bin/env bash\n")
        assert script.stat().st_mode & 0o111, f"{script.name} is not executable"
        assert 'cd "$(dirname "${BASH_SOURCE[0]}")/.."' in source
        subprocess.run(["bash", "-n", str(script)], cwd=tmp_path, check=True)
