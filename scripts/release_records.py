"""Records of a release in dist/: SBOM, licences of the dependencies, and provenance."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SBOM, LICENCES, PROVENANCE = DIST / "sbom.cdx.json", DIST / "licences.md", DIST / "provenance.json"


def write_records(environment: Path, files: list[Path]) -> Iterator[str]:
    """Write the records of the built files, and yield a line about each record.

    Args:
        environment: A virtual environment with the wheel and all extras, and nothing else.
        files: The wheel and the sdist.
    """
    if git("status", "--porcelain"):
        sys.exit("scripts/release: the working tree has changes: commit them, because the provenance names a commit")
    command = ["environment", "--mc-type", "library", "--pyproject", "pyproject.toml", "--output-reproducible"]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *command, "-o", SBOM, environment], cwd=ROOT, check=True)
    sbom = json.loads(SBOM.read_text("utf-8"))
    # The version is not in pyproject.toml; the name of a wheel contains it.
    sbom["metadata"]["component"]["version"] = files[0].name.split("-")[1]
    SBOM.write_text(json.dumps(sbom, indent=2) + "\n", "utf-8")
    components = sbom["components"]
    yield f"{SBOM.name}: {len(components)} components"

    licences = {f"{row['name']} {row['version']}": licence_of(row) for row in components}
    LICENCES.write_text(licence_page(licences), "utf-8")
    unknown = sorted(name for name, licence in licences.items() if not licence)
    yield f"{LICENCES.name}: {len(licences)} packages; without a declared licence: {', '.join(unknown) or 'none'}"

    statement = provenance([*files, SBOM, LICENCES])
    PROVENANCE.write_text(json.dumps(statement, indent=2) + "\n", "utf-8")
    yield f"{PROVENANCE.name}: {len(statement['subject'])} files, commit {git('rev-parse', 'HEAD')}"


def licence_of(component: dict[str, Any]) -> str:
    """Return the declared licence of a component, or an empty text."""
    names: list[str] = []
    for row in component.get("licenses", []):
        licence = row.get("license", {})
        names.append(row.get("expression") or licence.get("id") or licence.get("name", ""))
    # A package may declare an identifier, and the same licence again as a classifier.
    identifiers = [name for name in names if not name.startswith("License ::")]
    texts = identifiers or [name.rpartition(" :: ")[2] for name in names]
    return ", ".join(text.splitlines()[0] for text in dict.fromkeys(texts) if text)


def licence_page(licences: dict[str, str]) -> str:
    """Return the page of the licences of all packages."""
    rows = [f"| {name} | {licence or 'not declared'} |" for name, licence in sorted(licences.items())]
    return "\n".join(
        [
            "# Licences of the dependencies",
            "",
            f"The packages that `agentkit-prompt-tree[all]` installs on {platform.system()} with Python "
            f"{platform.python_version()}, with the licences that they declare. Their files contain the texts.",
            "",
            "| package | licence |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def provenance(files: list[Path]) -> dict[str, Any]:
    """Return an unsigned in-toto statement with the SLSA provenance of files.

    Source: https://slsa.dev/spec/v1.0/provenance
    """
    commit = {"uri": "git+file:.", "digest": {"gitCommit": git("rev-parse", "HEAD")}, "name": "agentkit"}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:agentkit:scripts-release:1",
                "externalParameters": {"command": "./scripts/release"},
                "resolvedDependencies": [commit],
            },
            "runDetails": {
                "builder": {
                    "id": "urn:agentkit:unsigned-builder",
                    "version": {
                        "python": platform.python_version(),
                        "system": f"{platform.system()} {platform.machine()}",
                        "uv": version("uv"),
                    },
                },
                "metadata": {"finishedOn": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")},
            },
        },
    }


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"scripts/release: the provenance needs the git repository: {done.stderr.strip()}")
    return done.stdout.strip()
