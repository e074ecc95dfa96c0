"""Build the files of a release into dist/, and check them.

usage: ./scripts/release [--quick | STEP ...]

  build       build the wheel and the sdist
  records     write the SBOM (CycloneDX), the licences of the dependencies, and the provenance of the files in dist/
  install     install both files on each Python from 3.11 to 3.14 of this machine, and import every public name
  extras      install each extra alone, and import the modules that need it
  types       check a program that imports every public name with mypy and pyright, both strict
  lowest      run the tests with the lowest versions that pyproject.toml permits
  prerelease  run the tests with the newest version of pydantic, pre-releases included

Without arguments all steps run, in about 15 minutes. `--quick` runs `build` and `install`, and installs the sdist and
all extras on the oldest Python only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from release_records import write_records

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DIST = ROOT / "dist"
BIN = ROOT / ".venv/bin"
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
IMPORTS = {
    "ag-ui": ["agentkit.server.http_app", "agentkit.server.ag_ui.ag_ui_api"],
    "anthropic": ["anthropic", "agentkit.models.anthropic.anthropic_model", "agentkit.models.http.sdk_clients"],
    "cli": ["rich.progress", "agentkit.cli.app", "agentkit.model_evaluation.progress_bar"],
    "dense": ["fastembed", "agentkit_memory.embedders.local_embedders"],
    "durable": ["croniter", "dbos", "agentkit.durable.worker"],
    "http": ["httpcore2", "lxml.etree", "agentkit_tools.ready.http_tool"],
    "improve": ["gepa.api", "agentkit.improve.prompt_search"],
    "ingest": ["pypdf", "agentkit_memory.ingest.isolated.pdf_pages", "agentkit_memory.ingest.isolated.zip_parts"],
    "mcp": ["agentkit_tools.mcp.mcp_toolset", "agentkit_tools.mcp.http_client", "agentkit_tools.mcp.serve", "uvicorn"],
    "monty": ["pydantic_monty", "agentkit_tools.sandboxes.monty_sandbox"],
    "openai": ["openai", "agentkit.models.openai.openai_responses", "agentkit_memory.embedders.openai_embedder"],
    "otel": ["opentelemetry.sdk.trace", "agentkit.observing.observation"],
    "parquet": ["pyarrow.parquet", "agentkit.training.row_table"],
    "postgres": ["psycopg", "agentkit.memory"],
    "prices": ["genai_prices", "agentkit.models.prices"],
    "sentence-transformers": ["sentence_transformers", "agentkit_memory.embedders.local_embedders"],
    "server": ["agentkit.server.serving", "agentkit.server.http_app", "agentkit.inspector.local_page"],
    "tokens": ["tiktoken", "tokenizers", "agentkit_prompts.tokens.id_tokenizer"],
    "vector": ["agentkit_memory.index.qdrant_edge", "agentkit_memory.index.qdrant_server", "snowballstemmer"],
}
"""Modules that need each extra, and packages that they import inside of functions. `all` contains other extras."""
TOOLS = {"bench", "dev", "docs", "release"}
"""Extras for work on the project. Their packages are resolved and not installed."""
TESTS = [
    "tests/prompts/composition",
    "tests/prompts/tree",
    "tests/tools/calling",
    "tests/models",
    "tests/memory/recall",
    "tests/memory/store",
    "tests/memory/index",
    "tests/memory/ingest",
    "tests/runtime",
    "tests/cli",
    "tests/server",
    "tests/tools/mcp",
    "tests/test_docs.py",
]
ONE_RUN = """
from agentkit import Agent, OfflineModel

print(Agent(OfflineModel(), "Be brief.").run_sync("Hello").finish_reason)
"""


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a command, and return its output. End the program with the output if the command fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"scripts/release: failed: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout.strip()


def uv(*arguments: str | Path) -> str:
    """Run uv."""
    return run(BIN / "uv", *arguments)


@cache
def interpreters() -> dict[str, str]:
    """Return the path of each Python of this machine by its version."""
    paths: dict[str, str] = {}
    for version in VERSIONS:
        command = [BIN / "uv", "python", "find", "--no-project", "--system", version]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            paths[version] = done.stdout.strip()
    if not paths:
        sys.exit("scripts/release: no Python from 3.11 to 3.14 is on the PATH")
    return paths


def oldest() -> str:
    """Return the oldest version of Python of this machine."""
    return next(iter(interpreters()))


def environment(work: Path, name: str, version: str, *requirements: str | Path) -> Path:
    """Create an environment with packages, and return the path of its Python."""
    folder = work / name
    if not folder.exists():
        uv("venv", "--quiet", "--python", interpreters()[version], folder)
        uv("pip", "install", "--quiet", "--python", folder, *requirements)
    return folder / "bin/python"


def built(suffix: str) -> Path:
    """Return the file in dist/ with a suffix. Build the files if they are missing."""
    files = [*DIST.glob(f"*{suffix}")]
    if not files:
        build()
        files = [*DIST.glob(f"*{suffix}")]
    return files[0]


def all_extras(work: Path, version: str) -> Path:
    """Return a Python with the wheel, all extras, and the libraries of `agentkit.testing`."""
    wheel = f"{built('.whl')}[all]"
    return environment(work, f"all-{version}", version, wheel, "hypothesis", "jsonschema", "pytest")


def build() -> None:
    """Build the wheel and the sdist."""
    for file in DIST.glob("*"):
        file.unlink()
    uv("build", "--quiet", "--out-dir", DIST)
    for file in sorted(DIST.glob("agentkit*")):
        print(f"   {file.name}: {file.stat().st_size:,} bytes")


def records(work: Path) -> None:
    """Build the files of this commit, and write their SBOM, licences and provenance."""
    build()
    wheel, sdist = built(".whl"), built(".tar.gz")
    environment(work, "published", oldest(), f"{wheel}[all]")
    for line in write_records(work / "published", [wheel, sdist]):
        print(f"   {line}")


def install(work: Path, *, quick: bool = False) -> None:
    """Install the wheel and the sdist on each Python."""
    for version in interpreters():
        is_short = quick and version != oldest()
        for suffix in [".whl"] if is_short else [".whl", ".tar.gz"]:
            print(f"-- Python {version}: base install of the {suffix}", flush=True)
            python = environment(work, f"base-{version}{suffix}", version, built(suffix))
            print(f"   {run(python, '-c', ONE_RUN, folder=work)}")
        if is_short:
            continue
        print(f"-- Python {version}: all extras", flush=True)
        python = all_extras(work, version)
        uv("pip", "check", "--quiet", "--python", python)
        program = every_name(work, python)
        run(python, program, folder=work)
        print(f"   {run(python.with_name('agentkit'), '--version', folder=work)}")
        print(f"   {program.read_text().count('import')} public names imported")
    missing = [version for version in VERSIONS if version not in interpreters()]
    if missing:
        print(f"-- not on this machine, and not tried: Python {', '.join(missing)}")


def every_name(work: Path, python: Path) -> Path:
    """Write a program that imports every public name of an installed agentkit, and return its path."""
    program = work / "names.py"
    program.write_text(run(python, ROOT / "scripts/public_imports.py", folder=work) + "\n")
    return program


def extras(work: Path) -> None:
    """Install each extra alone, and import the modules that need it."""
    wheel = built(".whl")
    for extra in PROJECT["optional-dependencies"]:
        if extra in TOOLS:
            uv("pip", "compile", "--quiet", "--extra", extra, "--output-file", work / f"{extra}.txt", "pyproject.toml")
            print(f"   {extra}: resolved, not installed", flush=True)
        elif extra != "all":
            python = environment(work, f"extra-{extra}", oldest(), f"{wheel}[{extra}]")
            run(python, "-c", f"import {', '.join(IMPORTS[extra])}", folder=work)
            print(f"   {extra}: {', '.join(IMPORTS[extra])}", flush=True)


def types(work: Path) -> None:
    """Check the types of every public name of the installed wheel."""
    python = all_extras(work, oldest())
    program = every_name(work, python)
    with program.open("a") as file:
        file.write(
            "from typing import assert_type\n\n"
            "assert_type(agentkit_Agent(agentkit_OfflineModel(), output=int).run_sync('2 + 3?').output, int)\n"
        )
    settings = {"typeCheckingMode": "strict", "reportUnusedImport": False, "include": [program.name]}
    (work / "pyrightconfig.json").write_text(json.dumps(settings))
    # In this folder only the installed package can be imported: without its `py.typed`, no name has a type.
    print(run(BIN / "mypy", "--strict", "--python-executable", python, program.name, folder=work))
    print(run(BIN / "pyright", "--pythonpath", python, "-p", ".", folder=work))


def lowest(work: Path) -> None:
    """Check that each lowest version has a wheel for each Python, and run the tests with the lowest versions."""

    def resolved(version: str, binary: str) -> list[str]:
        # Direct dependencies only: the newest version of an indirect dependency may be a minute old.
        options = ["--no-deps", "--all-extras", "--resolution", "lowest-direct", "--no-header", "--no-annotate"]
        options += ["--python-version", version, "--only-binary", binary]
        return uv("pip", "compile", "--quiet", *options, "pyproject.toml").splitlines()

    with ThreadPoolExecutor() as threads:
        wheels = threads.map(resolved, VERSIONS, [":all:"] * len(VERSIONS))
        packages = threads.map(resolved, VERSIONS, [":none:"] * len(VERSIONS))
        for version, with_wheel, lowest_versions in zip(VERSIONS, wheels, packages, strict=True):
            lines = sorted(set(lowest_versions) - set(with_wheel))
            if lines:
                sys.exit(f"scripts/release: lowest versions without a wheel for Python {version}: {', '.join(lines)}")
            print(f"-- each lowest version has a wheel for Python {version}", flush=True)
    python = environment(work, "lowest", oldest(), "--resolution", "lowest-direct", "--editable", ".[dev]")
    run_tests(python)


def prerelease(work: Path) -> None:
    """Run the tests with the newest version of pydantic, pre-releases included."""
    python = environment(work, "prerelease", oldest(), "--editable", ".[dev]")
    newest = ["--prerelease", "allow", "--upgrade-package", "pydantic", "--upgrade-package", "pydantic-core"]
    uv("pip", "install", "--quiet", "--python", python, *newest, "pydantic", "pydantic-core")
    version = run(python, "-c", "import pydantic; print(pydantic.VERSION)")
    if version.replace(".", "").isdigit():
        print(f"   pydantic {version} is newer than each pre-release: nothing to try")
        return
    print(f"-- tests with pydantic {version}", flush=True)
    run_tests(python)


def run_tests(python: Path) -> None:
    """Run the tests with another Python, and print the last lines of their output."""
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "--numprocesses", "auto", "--dist", "worksteal"]
    output = run(python, "-m", "pytest", *options, *TESTS)
    print("\n".join(output.splitlines()[-3:]))


def main() -> int:
    """Run the steps of the command line, and return the exit status."""
    steps: dict[str, Callable[[Path], None]] = {
        "build": lambda work: build(),
        "records": records,
        "install": install,
        "extras": extras,
        "types": types,
        "lowest": lowest,
        "prerelease": prerelease,
    }
    names = sys.argv[1:] or [*steps]
    if names == ["--quick"]:
        steps["install"] = lambda work: install(work, quick=True)
        names = ["build", "install"]
    unknown = [name for name in names if name not in steps]
    if unknown:
        print(__doc__.strip())
        return 0 if unknown == ["--help"] else 2
    # Tests start processes, and each process would compile every module.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ |= {
        "PATH": f"{os.environ['PATH']}:{pyenv_folders()}",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",
    }
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            print(f"== {name}", flush=True)
            steps[name](Path(work).resolve())
    return 0


def pyenv_folders() -> str:
    """Return the folders of the Pythons of pyenv, separated by colons. Its shims show one Python only."""
    shims = [Path(folder).parent for folder in os.environ["PATH"].split(":") if folder.endswith("/shims")]
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")), *shims]
    return ":".join(str(folder) for root in roots for folder in sorted(root.glob("versions/*/bin")))


if __name__ == "__main__":
    sys.exit(main())
