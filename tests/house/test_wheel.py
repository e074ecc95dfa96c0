"""Contents of an installed agentkit."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from typing import NamedTuple

import pytest

import agentkit
from tests.paths import ROOT

PACKAGES = {
    "agentkit": "agentkit",
    "agentkit_prompts": "prompts/agentkit_prompts",
    "agentkit_tools": "tools/agentkit_tools",
    "agentkit_memory": "memory/agentkit_memory",
}


UNTRACKED = ("agentkit/notes.py", "docs/a [draft].md", "memory/agentkit_memory/secrets.yaml")


class Built(NamedTuple):
    """The published files, built from a checkout in which files were forgotten."""

    tracked: set[str]
    sdist: tarfile.TarFile
    wheel: zipfile.ZipFile


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    tracked = {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    if not tracked:
        pytest.skip("not a git checkout: which files belong to the repository is not known")
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("built")
    for name in tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name)
    for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
        subprocess.run(command, cwd=checkout, check=True)
    for name in UNTRACKED:
        (checkout / name).write_text("")
    # The wheel is built from the sdist, so that a file that is missing in the sdist is missing here.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(tracked, tarfile.open(sdist), zipfile.ZipFile(wheel))


@pytest.fixture(scope="module")
def wheel(built: Built) -> zipfile.ZipFile:
    return built.wheel


def test_the_source_contains_the_files_of_git_and_no_other_files(built: Built) -> None:
    names = {name.partition("/")[2] for name in built.sdist.getnames()}
    assert names - built.tracked == {"PKG-INFO"}
    assert built.tracked - names == set()


def test_no_link_of_its_page_is_relative(wheel: zipfile.ZipFile) -> None:
    page = str(metadata_of(wheel).get_payload())
    assert "# agentkit" in page
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", page) == []


def test_a_project_with_an_address_has_links_to_it() -> None:
    hooks = runpy.run_path(str(ROOT / "hatch_build.py"))
    metadata = {"version": "1.2", "urls": {"Source": "https://example.com/us/kit/"}}
    hooks["ReadmeHook"](str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]  # type: ignore[index]
    assert "](https://example.com/us/kit/blob/v1.2/CONTRIBUTING.md)" in text
    assert "](https://example.com/us/kit/raw/v1.2/docs/injection.png)" in text


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(wheel.read(path).decode())


def files_of(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_it_contains_the_four_packages_and_no_other_modules(wheel: zipfile.ZipFile) -> None:
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
    packed = {name for name in files_of(wheel) if name.startswith(f"{package}/")}
    assert packed - expected == set(), "files of the wheel that are not in the folder of the package"
    assert expected - packed == set(), "files missing from the wheel: not in git? run `git add`"


def test_the_migrations_of_the_database_are_in_it(wheel: zipfile.ZipFile) -> None:
    assert [name for name in files_of(wheel) if name.startswith("agentkit_memory/") and "/versions/" in name]


def test_its_metadata_names_the_distribution_the_python_and_the_licence(wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Version"] == agentkit.__version__
    assert metadata["Name"] == "agentkit-prompt-tree"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    base = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split("<")[0].split(">")[0] for line in base) == [
        "alembic",
        "jinja2",
        "jsonschema-rs",
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
        "improve",
        "ingest",
        "mcp",
        "monty",
        "openai",
        "otel",
        "parquet",
        "postgres",
        "prices",
        "release",
        "sentence-transformers",
        "server",
        "tokens",
        "vector",
    }
    assert set(metadata.get_all("Provides-Extra", [])) == extras


def test_the_command_line_is_installed_with_it(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "agentkit = agentkit.cli:main" in wheel.read(path).decode()
