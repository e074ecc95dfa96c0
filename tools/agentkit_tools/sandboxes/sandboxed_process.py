"""Program of `ProcessSandbox`: isolates itself, then executes the code of one job.

It runs without the packages of the host, and imports only the standard library. A supervisor starts the process of the
code, and kills it when the host closes the input. Each line of the input and the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import errno
import io
import json
import linecache
import os
import platform
import random
import resource
import select
import signal
import struct
import sys
import traceback
import types
from ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, parse
from inspect import CO_COROUTINE, isawaitable
from typing import Any

_NAMESPACES = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000
"""New namespaces of users, mounts, network, processes, IPC and host names."""
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_LOCKED_FLAGS = {1024: 1024, 2048: 2048, 4096: 1 << 21, 8: 8}
"""Flags of a mount that a remount must keep: `statvfs` flag and `mount` flag."""
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_CAPABILITIES_V3 = 0x20080522
_NOBODY = 65534
_CALLS: dict[str, tuple[int, ...]] = {
    "fork, vfork, clone, clone3, execve, execveat": (57, 58, 56, 435, 59, 322),
    "socket, socketpair": (41, 53),
    "kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal": (62, 200, 234, 129, 297, 424),
    "ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd": (101, 310, 311, 312, 438),
    "mount, umount2, pivot_root, chroot, unshare, setns": (165, 166, 155, 161, 272, 308),
    "open_tree, move_mount, fsopen, mount_setattr, mknod, mknodat": (428, 429, 430, 442, 133, 259),
    "bpf, perf_event_open, userfaultfd, io_uring_setup": (321, 298, 323, 425),
    "keyctl, add_key, request_key": (250, 248, 249),
    "memfd_create, memfd_secret, shmget, msgget, mq_open": (319, 447, 29, 68, 240),
}
"""Forbidden system calls of x86_64, by their names."""
_CALLS_OF_ARM = (
    *(220, 435, 221, 281, 198, 199, 129, 130, 131, 138, 240, 424, 117, 270, 271, 272, 438, 40, 39, 41, 51, 97, 268),
    *(428, 429, 430, 442, 33, 280, 241, 282, 425, 219, 217, 218, 279, 447, 194, 186, 180),
)
"""The same calls of aarch64, which has no fork, vfork and mknod."""
_FORBIDDEN = {
    "x86_64": (0xC000003E, tuple([number for numbers in _CALLS.values() for number in numbers])),
    "aarch64": (0xC00000B7, _CALLS_OF_ARM),
}
"""Number of the architecture, and the forbidden system calls, by machine."""
_libc = ctypes.CDLL(None, use_errno=True)


class _Refused(Exception):
    """The operating system refused a part of the isolation."""


# Isolation


def _check(what: str, status: int) -> None:
    if status != 0:
        code = ctypes.get_errno()
        raise _Refused(f"{what}: {os.strerror(code)}")


def _enter_namespaces() -> None:
    """Enter new namespaces, as a user without a name."""
    maps = {"setgroups": "deny", "uid_map": f"{_NOBODY} {os.geteuid()} 1", "gid_map": f"{_NOBODY} {os.getegid()} 1"}
    _check("unshare", _libc.unshare(ctypes.c_int(_NAMESPACES)))
    try:
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise _Refused(f"the map of users: {error.strerror}") from None


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    texts = [text.encode() for text in (source, target, kind, data)]
    status = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(f"mount of {kind or 'a folder'}", status)


def _enter_private_root(size_mb: int) -> None:
    """Make an empty file system in memory the root, with the standard library and the shared libraries, read-only."""
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    library = os.path.dirname(os.__file__)
    folders: list[str] = []
    for folder in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", os.path.join(sys.base_prefix, "lib"), library):
        path = os.path.realpath(folder)
        if os.path.isdir(path) and not any(path == other or path.startswith(other + "/") for other in folders):
            folders.append(path)
    roots = [path for path in ("/tmp", "/mnt", "/var/tmp", "/run") if os.path.isdir(path)]
    root = next(path for path in roots if not any(folder.startswith(path + "/") for folder in folders))
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size_mb}m,mode=755,nr_inodes=10000")
    for path in folders:
        target = root + path
        os.makedirs(target, exist_ok=True)
        _mount(path, target, "", _MS_BIND)
        present = os.statvfs(target).f_flag
        locked = sum(flag for name, flag in _LOCKED_FLAGS.items() if present & name)
        _mount("none", target, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | locked)
    for link in ("/lib", "/lib64"):
        if os.path.islink(link) and not os.path.lexists(root + link):
            os.symlink(os.path.realpath(link), root + link)
    # The packages of the host: the code could not import them, but read them.
    for parent in {*folders, library, "/usr/lib/python3"}:
        for name in ("site-packages", "dist-packages"):
            hidden = os.path.join(root + parent, name)
            if os.path.isdir(hidden):
                _mount("tmpfs", hidden, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_RDONLY, "size=4k,mode=755")
    os.mkdir(root + "/work", 0o755)
    os.chroot(root)
    os.chdir("/work")


def _drop_privileges() -> None:
    """Drop all capabilities, and forbid system calls that start processes, open sockets or change the isolation."""
    _check("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = struct.pack("Ii", _CAPABILITIES_V3, 0)
    _check("capset", _libc.capset(header, struct.pack("6I", *[0] * 6)))
    machine = _FORBIDDEN.get(platform.machine())
    if machine is None:
        return
    architecture, calls = machine
    # Programs of BPF: a wrong architecture or ABI is killed, a forbidden call fails with EPERM.
    rows = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    rows += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, 0x80000000)]
    rows += [(0x15, len(calls) - number, 0, call) for number, call in enumerate(calls)]
    rows += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    program = ctypes.create_string_buffer(b"".join([struct.pack("HBBI", *row) for row in rows]))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rows), ctypes.addressof(program)))
    _check("seccomp", _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(filter_), 0, 0))


def _limit(job: dict[str, Any]) -> None:
    """Set the limits of the process."""
    memory = job["memory_mb"] * 1024 * 1024
    seconds = int(job["seconds"]) + 2
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: memory // 4,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


# The code


class _Output(io.RawIOBase):
    """Stream that sends the first characters to the host at once, and drops the rest."""

    def __init__(self, limit: int, descriptor: int) -> None:
        super().__init__()
        self._left = limit
        self._descriptor = descriptor
        self._is_cut = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data).decode("utf-8", "replace")
        if text and not self._is_cut:
            # At once: the code can be killed, and its printed text shows the reason.
            self._send(text[: self._left])
            if len(text) > self._left:
                self._is_cut = True
                self._send("\n[The rest of the output was dropped.]")
            self._left -= len(text)
        return len(data)

    def _send(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._descriptor, data) :]


class _Host:
    """Connection to the host, which answers the calls of functions."""

    def __init__(self, reading: int, writing: int, loop: asyncio.AbstractEventLoop) -> None:
        self._input = os.fdopen(reading, "rb")
        self._output = os.fdopen(writing, "wb")
        self._loop = loop
        self._waiting: list[tuple[str, asyncio.Future[Any]]] = []

    def read(self) -> Any:
        line = self._input.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def write(self, data: dict[str, Any]) -> None:
        self._write_line(json.dumps(data))

    def _write_line(self, text: str) -> None:
        self._output.write(text.encode() + b"\n")
        self._output.flush()

    def function(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            row = json.dumps([name, args, kwargs], default=_plain)
            future = self._loop.create_future()
            if not self._waiting:
                # Calls of other tasks, such as of `asyncio.gather`, are made before the loop calls this.
                self._loop.call_soon(self._flush)
            self._waiting.append((row, future))
            return await future

        call.__name__ = call.__qualname__ = name
        return call

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        rows = ", ".join([row for row, _ in waiting])
        self._write_line(f'{{"calls": [{rows}]}}')
        # The loop waits, so that the order of calls does not depend on time.
        for (_, future), answer in zip(waiting, self.read()["answers"], strict=True):
            if future.done():
                continue
            if answer["error"]:
                future.set_exception(RuntimeError(answer["error"]))
            else:
                future.set_result(answer["value"])


def _plain(value: Any) -> Any:
    """Return JSON data for a value that `json` does not support."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)


def _shown(value: Any, limit: int) -> str:
    """Return the text of a value: JSON if possible, otherwise its `repr`."""
    if value is None:
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        try:
            text = repr(value)
        except Exception as error:  # of any class of the code
            text = f"<{type(value).__name__} without a text: {type(error).__name__}>"
    if len(text) > limit:
        text = text[:limit] + " [cut]"
    return text


def _execute(code: str, file: str, names: dict[str, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Execute code, and return the value of its last expression.

    Code without `await` outside of functions runs outside of the event loop, as a script that calls `asyncio.run`.
    """
    tree = parse(code, file)
    nodes: list[tuple[Any, str]] = [(tree, "exec")]
    if tree.body and isinstance(tree.body[-1], Expr):
        nodes.append((Expression(tree.body.pop().value), "eval"))  # type: ignore[attr-defined]
    parts = [compile(node, file, mode, PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True) for node, mode in nodes]

    async def awaited(value: Any) -> Any:
        # Code with `await` is a coroutine; so is the value if the code omits `await`.
        while isawaitable(value):
            value = await value
        return value

    async def in_loop() -> list[Any]:
        return [await awaited(eval(part, names)) for part in parts]

    if any(part.co_flags & CO_COROUTINE for part in parts):
        values = loop.run_until_complete(in_loop())
    else:
        values = [eval(part, names) for part in parts]
    return loop.run_until_complete(awaited(values[1])) if len(values) > 1 else None


def _trace(error: BaseException, file: str, folder: str) -> str:
    """Return a traceback without the frames of this program and without paths of the host."""
    trace = traceback.TracebackException.from_exception(error, limit=-30)
    own = [number for number, frame in enumerate(trace.stack) if frame.filename == file]
    # Frames before the code belong to this program.
    trace.stack = traceback.StackSummary.from_list(trace.stack[min(own, default=len(trace.stack)) :])
    _remove_paths(trace)
    text = "".join(trace.format())
    for path in sorted({folder + "/", sys.base_prefix + "/", sys.prefix + "/"}, key=len, reverse=True):
        text = text.replace(path, "")
    return text


def _remove_paths(trace: traceback.TracebackException) -> None:
    frames = [frame for frame in trace.stack if frame.filename != __file__]
    for frame in frames:
        frame.filename = os.path.basename(frame.filename)
    trace.stack = traceback.StackSummary.from_list(frames)
    for inner in (trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())):
        if inner is not None:
            _remove_paths(inner)


def _main(job: dict[str, Any], host: _Host, printing: int) -> dict[str, Any]:
    """Execute the code of a job, and return the result."""
    limit, file, folder = job["output_chars"], job["file"], os.getcwd()
    for name, data in job["files"].items():
        parent = os.path.dirname(name)
        if parent:
            os.makedirs(parent, exist_ok=True)
        with open(name, "wb") as stream:
            stream.write(base64.b64decode(data))
    output: Any = _Output(limit, printing)
    sys.stdout = sys.stderr = io.TextIOWrapper(output, "utf-8", "replace", write_through=True)
    sys.argv = [file, *job["arguments"]]
    path = os.path.join(folder, file)
    sys.path.insert(0, os.path.dirname(path))  # modules next to a script, as for `python script.py`
    linecache.cache[file] = (len(job["code"]), None, job["code"].splitlines(keepends=True), file)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    names.update({name: host.function(name) for name in job["functions"]})
    names.update({"asyncio": asyncio, "__file__": path})
    # A second event loop would need a pair of sockets.
    asyncio.run = lambda main, **_: host._loop.run_until_complete(main)
    random.seed(job["code"])
    value = error = ""
    try:
        value = _shown(_execute(job["code"], file, names, host._loop), limit)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            error = f"SystemExit: {ended.code}"[:limit]
    except MemoryError:
        error = f"MemoryError: the code needs more than {job['memory_mb']} megabytes"
    except BaseException as raised:
        error = _trace(raised, file, folder)[-limit:]
    return {"value": value, "error": error}


def _run_code(job: dict[str, Any], reading: int, writing: int, printing: int) -> None:
    """Isolate the process of the code, execute the code and write its result."""
    # If the supervisor is killed, the process of the code is killed too.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    loop = asyncio.new_event_loop()  # before sockets are forbidden: the loop needs a pair
    asyncio.set_event_loop(loop)
    host = _Host(reading, writing, loop)
    try:
        if job["namespaces"]:
            _enter_private_root(max(job["memory_mb"] // 4, 16))
        _limit(job)
        _drop_privileges()
    except (_Refused, OSError) as error:
        host.write({"refused": str(error)})
        return
    os.environ.clear()
    host.write({"ready": True})
    result = _main(job, host, printing)
    host.write({"result": result})


def _supervise() -> int:
    """Start the process of the code, and kill it when the host closes the input or dies."""
    line = bytearray()
    # Without a buffer: the process of the code reads the following lines.
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return 1
        line += piece
    os.set_blocking(0, True)
    size = int(line)
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1 << 20))
        if not piece:
            return 1
        data += piece
    job = json.loads(data)
    reading, writing, printing = os.dup(0), os.dup(1), os.dup(2)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    if job["namespaces"]:
        try:
            _enter_namespaces()
        except _Refused as error:
            os.write(writing, json.dumps({"refused": str(error)}).encode() + b"\n")
            return 1
    child = os.fork()
    if child == 0:
        os.dup2(null, 0)
        os.close(null)
        status = 1
        try:
            _run_code(job, reading, writing, printing)
            status = 0
        finally:
            os._exit(status)
    for number in (reading, writing, printing):
        os.close(number)
    poll = select.poll()
    poll.register(0, 0)  # only the end of the connection is reported
    poll.poll()
    for kill, number in ((os.killpg, child), (os.kill, child)):
        with contextlib.suppress(OSError):
            kill(number, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


if __name__ == "__main__":
    os._exit(_supervise())
