"""`--chat-template` and `--model-name`: a local model is asked for raw completions of what its template writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers import completes, serve


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    command = [sys.executable, "-m", "agentkit", *arguments, "--home", str(folder / "home")]
    return subprocess.run(
        command, cwd=folder, env={**clean, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_local_model_is_asked_for_raw_completions(tmp_path: Path) -> None:
    ask = ("chat", "--chat-template", "vicuna", "--once", "Hi", "-m")
    with serve() as server:
        server.on("local", completes("Hello there."))
        for done in (
            run(tmp_path, *ask, "local", OPENAI_BASE_URL=server.url),
            run(tmp_path, *ask, f"{server.url}#local"),  # an address says whom to ask, whatever the environment is
        ):
            assert done.stdout.strip() == "Hello there.", done.stderr
        prompts = [asked.body["prompt"] for asked in server.to("local")]
    assert len(prompts) == 2
    assert all("USER: " in prompt and prompt.endswith("ASSISTANT:") for prompt in prompts)


def test_a_file_or_a_model_s_name_says_which_template(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('{"model_name": "own", "model_path": null, "user": "<U>", "assistant": "<A>"}')
    for option in (
        ("--chat-template", "own.json"),
        ("--chat-template", "qwen2d5"),
        ("--model-name", "internlm2-chat-7b"),
    ):
        done = run(tmp_path, "compose", "Hi", *option)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith("<A>" if "own.json" in option else "<|im_start|>assistant")


def test_an_unknown_template_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "compose", "Hi", "--chat-template", "vicunna")
    assert done.returncode == 1 and "did you mean 'vicuna'" in done.stderr
