"""Paths of the repository, and of the shared cases if they exist."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CONFORMANCE = Path(os.environ.get("AGENTKIT_CONFORMANCE", SHARED / "conformance"))
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix)
"""The commands of `scripts`, without Python modules."""
GENERATED = (ROOT / "docs" / "errors", ROOT / "docs" / "project", ROOT / "docs" / "reference")
"""Folders of pages that `scripts/docs` writes and git ignores."""
DOORS = sorted(
    [
        "agentkit.errors",
        "agentkit.testing",
        *(".".join(stub.relative_to(ROOT).with_suffix("").parts) for stub in (ROOT / "agentkit").rglob("[!_]*.pyi")),
        *(".".join(stub.relative_to(ROOT).parent.parts) for stub in (ROOT / "agentkit").rglob("__init__.pyi")),
    ]
)
"""The modules that users import from: those that have a stub, and two modules."""
