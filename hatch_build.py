"""What a build takes: only files that git knows, and a README whose links work on the package index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


class TrackedFilesHook(BuildHookInterface):
    """Leaves untracked files out of wheel and sdist. An unpacked sdist has no git, and no untracked files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it looks for files."""
        if not (Path(self.root) / ".git").exists():
            return
        command = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
        try:
            names = subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout.decode().split("\0")
        except (OSError, subprocess.CalledProcessError) as error:  # no git, or the checkout of another user
            self.app.display_warning(f"untracked files are not left out: git cannot list them: {error}")
            return
        excluded = self.build_config.target_config.setdefault("exclude", [])
        excluded += ["/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", name) for name in names if name]


class ReadmeHook(MetadataHookInterface):
    """Makes the relative links of the README absolute: below the `Source` of `project.urls`.

    While the project has no public address, there is nothing they could lead to: they become plain text.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it has read `pyproject.toml`."""
        source = metadata.get("urls", {}).get("Source", "").rstrip("/")
        tag = f"v{metadata['version']}"

        def absolute(match: re.Match[str]) -> str:
            image, text, target = match.groups()
            if source:
                return f"{image}[{text}]({source}/{'raw' if image else 'blob'}/{tag}/{target})"
            return "" if image else text

        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(absolute, text)}
