"""`agentkit eval`: files of media that a configuration or a row names."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_media_are_read_next_to_the_configuration_and_inside_the_root(run: Run, folder: Path) -> None:
    inner = folder / "configs" / "sums"
    inner.mkdir(parents=True)
    (folder / "secret.png").write_bytes(b"secret")
    (folder / "configs" / "a.png").write_bytes(b"picture")
    template = {"type": "RawPromptTemplate", "messages": [{"expand_column": "chat"}]}
    cfg = {
        **{"abbr": "x", "path": "rows.jsonl", "reader_cfg": {"input_columns": ["q"], "output_column": "a"}},
        "infer_cfg": {"prompt_template": template, "inferencer": {"type": "GenInferencer"}},
    }
    (inner / "x.py").write_text(f"datasets = [{cfg!r}]")
    command = ("eval", "configs/sums/x.py", "--score", "none", "--model", "offline")
    for address, options, is_sent in (
        ("../a.png", (), True),
        ("../../secret.png", (), False),
        ("../../secret.png", ("--root", "."), True),
        ("configs/a.png", (), False),
        ("secret.png", ("--allow-media",), True),
    ):
        row = {
            "q": "x",
            "a": "1",
            "chat": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}],
        }
        (inner / "rows.jsonl").write_text(json.dumps(row))
        assert run(*command, *options).exit_code == int(not is_sent), (address, options)
