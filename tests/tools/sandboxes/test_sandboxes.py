"""Sandboxes: code cannot reach the host, and ends at its limits."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from agentkit.sandbox import (
    MontySandbox,
    ProcessSandbox,
    Sandbox,
    SandboxAnswer,
    SandboxCall,
    SandboxError,
    SandboxJob,
    SandboxLimits,
    SandboxResult,
    SandboxUnavailable,
)
from tests.effort import thinned

LIMITS = SandboxLimits(seconds=0.3, memory_mb=128, output_chars=1000)
SECRET = "tests-7f3a"


async def double(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
    """Answer `double(2)` with [4, number of calls at once], and `fail()` with an error."""
    answers: list[SandboxAnswer] = []
    for call in calls:
        if call.name == "double":
            answers.append(SandboxAnswer([2 * value for value in (*call.args, *call.kwargs.values())] + [len(calls)]))
        else:
            answers.append(SandboxAnswer(error="no such row"))
    return answers


def job(code: str, limits: SandboxLimits = LIMITS) -> SandboxJob:
    return SandboxJob(code, ("double", "fail"), {"data/a.txt": b"hello"}, limits=limits)


def process_sandbox(*, namespaces: bool = True) -> ProcessSandbox:
    """Return a sandbox; skip the test if the kernel does not allow it."""
    sandbox = ProcessSandbox(namespaces=namespaces)
    try:
        asyncio.run(sandbox.run(SandboxJob("1"), double))
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return sandbox


@pytest.fixture(params=["monty", "process"], scope="module")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "monty":
        return MontySandbox()
    return process_sandbox()


WORKS = {
    "1 + 1": SandboxResult(value="2"),
    "print('a')\nprint('b')": SandboxResult(output="a\nb\n"),
    "": SandboxResult(),
    "x = 1": SandboxResult(),
    "[1, 'a', None, {'b': 2.5}]": SandboxResult(value='[1, "a", null, {"b": 2.5}]'),
    "(await double(2))[0] + (await double(x=3))[0]": SandboxResult(value="10"),
    "import asyncio\nawait asyncio.gather(double(1), double(2))": SandboxResult(value="[[2, 2], [4, 2]]"),
    "open('data/a.txt').read()": SandboxResult(value='"hello"'),
    "try:\n    await fail()\nexcept RuntimeError as error:\n    print(error)": SandboxResult(output="no such row\n"),
    "async def f(n):\n    return (await double(n))[0]\n[await f(n) for n in range(3)]": SandboxResult(
        value="[0, 2, 4]"
    ),
}


async def test_code_computes_prints_calls_functions_and_reads_its_files(sandbox: Sandbox) -> None:
    codes = WORKS if isinstance(sandbox, MontySandbox) else thinned(list(WORKS), 2)
    wrong = {code: result for code in codes if (result := await sandbox.run(job(code), double)) != WORKS[code]}
    assert wrong == {}


FAILS = [
    "1 / 0",
    "a b",
    "await fail()",
    "raise ValueError('x')",
    "def f(): f()\nf()",
    "await unknown()",
    "import pydantic",
    "import agentkit",
    "while True: pass",
    "x = 'a' * 10**9",
    "x = []\nwhile True: x.append('a' * 10**6)",
    "import os\nos.fork()",
    "import os\nwhile True: os.fork()",
    "import threading\nthreading.Thread(target=print).start()",
    "import subprocess\nsubprocess.run(['ls'])",
    "import os\nos.execv('/bin/sh', ['sh'])",
    "import socket\nsocket.socket().connect(('127.0.0.1', 80))",
    "import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
    "import os\nos.kill(os.getppid(), 9)",
    "import os\nos._exit(0)",
    "import ctypes\nctypes.string_at(0)",
    "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "import ctypes\nassert ctypes.CDLL(None).mount(b'none', b'/', b'tmpfs', 0, b'') == 0",
    "import os\nfor number in range(3, 20):\n    try: os.write(number, b'{}\\n' * 9)\n    except OSError: pass",
    "file = open('big', 'w')\nwhile True: file.write('x' * 10**6)",
    "import sys\nsys.stdout = None\nsys.exit(3)",
]


async def test_attacks_end_with_an_error_that_names_no_path_of_the_host(sandbox: Sandbox) -> None:
    wrong: dict[str, SandboxResult] = {}
    paths = (str(Path(__file__).parents[3]), sys.base_prefix, "sandboxed_process")
    for code in thinned(FAILS, 2 if isinstance(sandbox, MontySandbox) else 4):
        result = await sandbox.run(job(code), double)
        if not result.error or any(path in result.error for path in paths):
            wrong[code] = result
    assert wrong == {}


HIDDEN = [
    "open('/etc/passwd').read()",
    "open('/proc/self/environ').read()",
    "open('../../../../../proc/1/environ').read()",
    "__import__('os').listdir('/etc')",
    "__import__('os').listdir('/proc')",
    "__import__('os').getenv('TESTS_SECRET')",
    "'TESTS_SECRET' in __import__('os').environ",
    f"[path for path in __import__('glob').glob('/*/*') if '{SECRET}' in path]",
    "[path for path in __import__('sys').path if 'packages' in path]",
]
ALL_HIDDEN = """
results = []
for text in open("texts").read().splitlines():
    try:
        results.append(eval(text) or None)
    except OSError:
        results.append(None)
[text for text in results if text]
"""


async def test_files_and_environment_variables_of_the_host_are_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTS_SECRET", SECRET)
    (tmp_path / SECRET).write_text(SECRET)
    texts = [*HIDDEN, f"open('{tmp_path}/{SECRET}').read()"]
    for text in texts:
        result = await MontySandbox().run(job(text), double)
        assert result.error or result.value in ("", "false", "[]"), (text, result)
    files = {"texts": "\n".join(texts).encode()}
    result = await ProcessSandbox().run(SandboxJob(ALL_HIDDEN, files=files), double)
    assert result == SandboxResult(value="[]")


ESCAPES = """
import ctypes, os, socket, subprocess, threading
def refused(function):
    try:
        function()
    except (OSError, RuntimeError):
        return True
libc = ctypes.CDLL(None)
thread = threading.Thread(target=print)
[
    *map(refused, [os.fork, socket.socket, socket.socketpair, thread.start, lambda: subprocess.run(["ls"])]),
    refused(lambda: os.kill(os.getppid(), 0)),
    refused(lambda: os.execv("/bin/true", ["true"])),
    refused(lambda: os.memfd_create("x")),
    libc.unshare(0x10000000) == -1,
    libc.ptrace(0, 0, 0, 0) == -1,
    libc.mount(b"none", b"/", b"tmpfs", 0, b"") == -1,
]
"""


def test_processes_sockets_and_mounts_are_refused_also_without_namespaces() -> None:
    for sandbox in (process_sandbox(), process_sandbox(namespaces=False)):
        result = asyncio.run(sandbox.run(job(ESCAPES, SandboxLimits(seconds=5)), double))
        assert result.value == f"[{', '.join(['true'] * 11)}]", result


async def test_output_is_cut_and_a_gigabyte_of_it_ends_at_the_time_limit(sandbox: Sandbox) -> None:
    cut = await sandbox.run(job("print('x' * 5000)\n'y' * 5000"), double)
    assert cut.output.startswith("x" * 1000)
    assert max(len(cut.output), len(cut.value)) < 1100
    endless = await sandbox.run(job("while True: print('x' * 1000000)"), double)
    assert endless.error
    assert len(endless.output) < 1100


SHOWN = {
    "print('a')\nwhile True: pass": ("a\n", ""),
    "print('a')\nimport os\nos._exit(0)": ("a\n", ""),
    "print('a')\n10**5000": ("a\n", "<int without a text: ValueError>"),
    "x = []\nfor _ in range(3000): x = [x]\nx": ("", "<list without a text: RecursionError>"),
}


async def test_printed_text_is_in_the_result_of_code_that_is_stopped_or_has_no_text(sandbox: Sandbox) -> None:
    results = {code: await sandbox.run(job(code), double) for code in SHOWN}
    assert {code: (result.output, result.value) for code, result in results.items()} == SHOWN


MESSAGES = """
import os, time
for number in range(3, 20):
    try:
        os.write(number, {!r})
    except OSError:
        pass
"""
CALL = MESSAGES.format(b'{"calls": [["double", [], {}]]}\n')
UNREAD = [
    (CALL + "time.sleep(1000)", 1_000_000, "after 0.3 seconds"),
    (CALL + "os.closerange(0, 99)\ntime.sleep(1000)", 100_000, "ended without a result|signal 9"),
    ("while True:\n    " + MESSAGES.format(b'{"calls": []}\n').replace("\n", "\n    "), 1, "invalid data"),
]


@pytest.mark.parametrize(("code", "chars", "error"), UNREAD)
async def test_code_that_reads_no_answers_ends_at_its_time_limit(code: str, chars: int, error: str) -> None:
    async def large(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
        return [SandboxAnswer("x" * chars) for _ in calls]

    async with asyncio.timeout(30):
        assert re.search(error, (await ProcessSandbox().run(job(code), large)).error)


async def test_arguments_without_a_json_form_are_errors_of_their_call(sandbox: Sandbox) -> None:
    code = "import asyncio\nasync def call():\n    try:\n        await double({(1, 2): 3})\n    except TypeError:\n"
    code += "        return 'refused'\nawait asyncio.gather(double(1), call(), double(2))"
    assert (await sandbox.run(job(code), double)).value == '[[2, 2], "refused", [4, 2]]'


async def test_a_script_has_its_path_and_imports_modules_next_to_it() -> None:
    files = {"scripts/tools.py": b"def double(x): return 2 * x", "scripts/data.txt": b"4"}
    code = "import sys, tools\nfrom pathlib import Path\nraw = (Path(__file__).parent / 'data.txt').read_text()\n"
    code += "print(sys.argv, tools.double(int(raw)), __name__)\n1 / 0"
    script = SandboxJob(code, files=files, arguments=("a",), file="scripts/fill.py")
    result = await ProcessSandbox().run(script, double)
    assert result.output == "['scripts/fill.py', 'a'] 8 __main__\n"
    assert result.error.startswith('Traceback (most recent call last):\n  File "fill.py", line 5')


SCRIPTS = {
    "import asyncio\nasync def f():\n    print((await double(2))[0])\nasyncio.run(f())": ("4\n", ""),
    "import asyncio\nasync def f(n):\n    return (await double(n))[0]\n"
    "def main():\n    return asyncio.run(f(1)) + asyncio.run(f(2))\nmain()": ("", "6"),
    "import asyncio\nasyncio.gather(double(1), double(2))": ("", "[[2, 2], [4, 2]]"),
    "async def f(): return 1\nf()": ("", "1"),
    "import sys\nsys.stdout.reconfigure(encoding='utf-8')\nprint('\u2603')": ("\u2603\n", ""),
    "import sys\nsys.stdout.buffer.write(b'raw')\nsys.stderr.write('text')": ("rawtext", "4"),
    "import csv, sys\ncsv.writer(sys.stdout).writerow([1, 2])\nNone": ("1,2\r\n", ""),
}


async def test_scripts_of_programs_without_await_outside_of_functions_run() -> None:
    results = {code: await ProcessSandbox().run(job(code), double) for code in SCRIPTS}
    assert {code: (result.output, result.value) for code, result in results.items()} == SCRIPTS, results


async def test_the_time_of_calls_is_not_the_time_of_the_code(sandbox: Sandbox) -> None:
    async def slow(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
        await asyncio.sleep(0.5)
        return [SandboxAnswer(1) for _ in calls]

    assert await sandbox.run(job("await double(1)"), slow) == SandboxResult(value="1")


async def test_a_cancelled_execution_leaves_no_process() -> None:
    for sandbox in (MontySandbox(), ProcessSandbox()):
        before = children()
        task = asyncio.create_task(sandbox.run(job("while True: pass", SandboxLimits(seconds=60)), double))
        while children() <= before:
            await asyncio.sleep(0.01)
        await cancelled(task, before)


@pytest.mark.parametrize("steps", [0, 2, 5])
def test_a_program_that_ends_while_a_process_starts_ends_at_once(steps: int) -> None:
    code = f"""
import asyncio
from agentkit.sandbox import ProcessSandbox, SandboxJob

async def main():
    running = asyncio.create_task(ProcessSandbox().run(SandboxJob("while True: pass"), None))
    for _ in range({steps}):
        await asyncio.sleep(0)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_code_that_computes_ends_when_its_execution_is_cancelled(sandbox: Sandbox) -> None:
    has_called = asyncio.Event()

    async def answer(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
        has_called.set()
        return await double(calls)

    before = children()
    endless = job("await double(1)\nwhile True: pass", SandboxLimits(seconds=60))
    task = asyncio.create_task(sandbox.run(endless, answer))
    await has_called.wait()
    await asyncio.sleep(0.1)
    await cancelled(task, before)


async def cancelled(task: asyncio.Task[SandboxResult], before: set[str]) -> None:
    """Cancel an execution, and wait until it has ended and only the processes `before` are left."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):  # long before the limit of the code
            await task
    while not children() <= before:  # the worker of Monty ends in the background
        await asyncio.sleep(0.01)


def children() -> set[str]:
    """Return the processes that this process started."""
    names: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended in the meantime
            names.update((thread / "children").read_text().split())
    return names


async def test_an_error_of_the_host_ends_the_execution(sandbox: Sandbox) -> None:
    async def broken(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
        raise LookupError("host")

    with pytest.raises(LookupError, match="host"):
        await sandbox.run(job("try:\n    await double(1)\nexcept BaseException: pass"), broken)


def test_invalid_limits_and_paths_are_refused_with_all_problems() -> None:
    with pytest.raises(SandboxError, match=r"seconds.*memory_mb"):
        SandboxLimits(seconds=0, memory_mb=True)
    with pytest.raises(SandboxError, match="'a/b' is in a folder that is a file"):
        SandboxJob("1", files={"a/b": b"", "a": b""})
    for path in ("/etc/x", "../x", "", "a/../../x", "a/.", "x" * 256):
        with pytest.raises(SandboxError, match=r"; files: "):
            SandboxJob("1", files={path: b""}, file=path)
