"""Rules of the code that can be checked for each module."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.packages import MODULES, PACKAGES, module_name, parsed
from tests.paths import DOORS, ROOT, SCRIPTS

LINES = 450


def tracked() -> list[Path]:
    """Return the files of the repository in git, or no files outside of a git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in done.stdout.split("\0") if name]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_ships_its_types(package: Path) -> None:
    assert (package / "py.typed").is_file()
    assert (package / "__init__.py").is_file()


def test_a_module_has_a_docstring_and_a_limited_number_of_lines() -> None:
    written = [path for path in MODULES if path.read_bytes().strip()]  # an empty `__init__.py` needs no docstring
    assert [module_name(path) for path in written if not ast.get_docstring(parsed(path))] == []
    long = [module_name(path) for path in written if len(path.read_text("utf-8").splitlines()) > LINES]
    assert not long, f"over {LINES} lines: move one of its concerns into a file of its own"


def test_a_private_module_lists_its_names_only_if_it_exports_an_imported_name() -> None:
    needless = []
    for path in MODULES:
        listed = re.search(r"^__all__ = \[.*?\]", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        if listed and path.name != "__init__.py" and module_name(path) not in DOORS:
            imports = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
            names = {alias.asname or alias.name for node in imports for alias in node.names}
            if names.isdisjoint(re.findall(r'"(\w+)"', listed[0])):
                needless.append(module_name(path))
    assert needless == []


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
