"""What somebody gets who installs agentkit."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = {
    "agentkit": "agentkit",
    "agentkit_prompts": "prompts/agentkit_prompts",
    "agentkit_tools": "tools/agentkit_tools",
    "agentkit_memory": "memory/agentkit_memory",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def files_of(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_it_holds_the_four_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in files_of(wheel)} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_in_it(wheel: zipfile.ZipFile, package: str) -> None:
    folder = ROOT / PACKAGES[package]
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{package}/py.typed" in expected
    assert {name for name in files_of(wheel) if name.startswith(f"{package}/")} == expected


def test_the_migrations_of_the_database_are_in_it(wheel: zipfile.ZipFile) -> None:
    assert [name for name in files_of(wheel) if name.startswith("agentkit_memory/") and "/versions/" in name]


def test_its_metadata_names_the_distribution_the_python_and_the_licence(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(wheel.read(path).decode())
    assert metadata["Name"] == "agentkit-prompt-tree"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    base = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split("<")[0].split(">")[0] for line in base) == [
        "alembic",
        "griffelib",
        "jinja2",
        "pydantic",
        "pydantic-core",
        "pyyaml",
        "sqlalchemy",
        "typing-extensions",
    ]
    extras = {
        "all",
        "ag-ui",
        "anthropic",
        "bench",
        "cli",
        "dense",
        "dev",
        "docs",
        "durable",
        "http",
        "ingest",
        "jsonschema",
        "mcp",
        "openai",
        "otel",
        "postgres",
        "sentence-transformers",
        "server",
        "tokens",
        "vector",
    }
    assert set(metadata.get_all("Provides-Extra", [])) == extras


def test_the_command_line_is_installed_with_it(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "agentkit = agentkit.cli:main" in wheel.read(path).decode()


def test_it_works_unpacked_without_the_repository(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import agentkit as kit, agentkit_prompts as prompts"
    code += "; print(kit.__file__); print(prompts.__file__)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.split() if not Path(line).is_relative_to(tmp_path)] == []
