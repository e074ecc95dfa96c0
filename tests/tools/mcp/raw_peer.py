"""An MCP server that writes its own lines, which no SDK can write: `python raw_peer.py NAME`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

OUT = sys.stdout


def write(line: str) -> None:
    OUT.write(line + "\n")
    OUT.flush()


def doubling(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


OUTPUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "exponential": (doubling(40), {"x": "text"}),
    "catastrophic": ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 5_000 + "!"}),
    "endless": ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}}, {}),
    "malformed": ({"properties": {"x": {"required": 5}}}, {}),
    "listed": ({"properties": {"x": {"items": {"enum": list(range(10_000))}}}}, {"x": [-1] * 10_000}),
    "product": ({"properties": {"x": {"items": {"anyOf": [{"minimum": 9}] * 5_000}}}}, {"x": [1] * 5_000}),
}


def tools() -> list[dict[str, Any]]:
    plain = {"type": "object"}
    bomb = {"type": "object", **doubling(40)}
    made = [
        {
            "name": name,
            "description": str(os.getpid()),
            "inputSchema": plain,
            "outputSchema": {"type": "object", **schema},
        }
        for name, (schema, _) in OUTPUTS.items()
    ]
    odd = ("half", "bytes", "unparsable", "batch", "deep", "huge", "mute", "without_end", "asks", "deaf", "fine")
    odd += ("pid", "environment", "future", "contentless")
    return [*made, *({"name": name, "inputSchema": plain} for name in odd), {"name": "bomb", "inputSchema": bomb}]


def answer(number: Any, name: str) -> None:
    text = {"pid": str(os.getpid()), "environment": json.dumps({**os.environ, "PWD": str(Path.cwd())})}.get(name, "ok")
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if name in OUTPUTS:
        result["structuredContent"] = OUTPUTS[name][1]
    if name == "future":
        result["content"].append({"type": "map", "pins": [1]})
    if name == "contentless":
        result = {"structuredContent": {"n": 1}}
    whole = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    if name == "half":
        whole = whole.replace('"ok"', '"cut \\ud83d"')
    elif name == "bytes":
        OUT.buffer.write(whole.encode().replace(b"ok", b"cut \xff") + b"\n")
        OUT.buffer.flush()
    if name == "unparsable":
        whole = "{" * 1_000
    elif name == "batch":
        whole = f"[{whole}, {whole}]"
    elif name == "deep":
        whole = whole.replace('"ok"', "[" * 100_000 + "]" * 100_000)
    elif name == "huge":
        whole = whole.replace('"ok"', "9" * 100_000)
    if name == "without_end":
        flood()
    if name == "asks":
        ask_on()
    if name == "deaf":
        time.sleep(600)
    if name not in ("bytes", "mute"):
        write(whole)


def flood() -> None:
    """Write an endless line, as fast as it is read."""
    while True:
        OUT.write("x" * 1_000_000)


def ask_on() -> None:
    """Send requests to the client in a loop, and read no answer."""
    for number in range(10_000_000):
        write(json.dumps({"jsonrpc": "2.0", "id": f"asked {number}", "method": "sampling/createMessage"}))


def malformed() -> list[Any]:
    """Return tools of which only the first and the last are valid."""
    fine = {"type": "object"}
    return [
        {"name": "first", "inputSchema": fine},
        {"name": "none"},
        {"name": "listed", "inputSchema": []},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": 5}}},
        {"name": 5, "inputSchema": fine},
        "nothing",
        {"name": "n" * 2_000_000, "inputSchema": fine},
        {"name": "last", "inputSchema": fine},
    ]


def many() -> list[Any]:
    return [
        {"name": f"tool_{at}", "description": "x" * 50, "inputSchema": {"type": "object"}}
        for at in range(100_000 if sys.argv[1] == "many" else 30_000)
    ]


def crowded() -> list[Any]:
    """Return as many empty lists as fit into 30 MB: reading them would take seconds and a gigabyte."""
    return [[]] * 10_000_000


MODES = {"crowded": crowded, "malformed": malformed, "many": many, "many_short": many}


def main() -> None:
    mode = sys.argv[1]
    if mode == "silent":
        signal.pause()
    if mode == "crash":
        print("cannot find my config", file=sys.stderr, flush=True)
        sys.exit(3)
    if mode == "garbage":
        write("this is no JSON-RPC")
        write('{"jsonrpc": "2.0", "id": 99, "result": []}')
    if mode in ("stubborn", "hung"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message["method"]
        if method == "initialize" and mode == "flood":
            flood()
        elif method == "initialize":
            info = {"name": "raw", "version": "0"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))
        elif method == "tools/list" and mode not in ("no_list", "hung"):
            listed = MODES.get(mode, tools)()
            write(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": listed}}))
        elif method == "tools/call":
            answer(number, message["params"]["name"])
        elif number is not None and method != "tools/list":
            write(json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown"}}))
    while mode in ("stubborn", "hung"):  # its pipes were closed, and it continues
        time.sleep(1)


main()
