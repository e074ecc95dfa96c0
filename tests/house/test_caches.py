"""Caches of modules have a bound: a long-running process must not grow with its inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.packages import PACKAGES, module_name, parsed

BOUNDED_OTHERWISE = {
    "agentkit_prompts.system.background_loop._loops": "one per use, and for sync runs one per level of runs in runs",
    "agentkit_prompts.system.per_loop._OPEN": "one per client of a loop; its end or the next request there removes it",
    "agentkit.run.engine.attempt._RUNNING": "one entry per run under way; the end of the run removes it",
    "agentkit_tools.mcp.refresh_turn._REFRESHED": "one entry per refresh under way; its end removes it",
    "agentkit_memory.database.sqlite._idle": "one entry per connection of a parent process, added by a fork",
    "agentkit_memory.database.sqlite._busy": "one entry per file of a parent process, added by a fork",
}
GROWS = {"add", "append", "appendleft", "extend", "insert", "setdefault", "update"}


def unbounded_caches(tree: ast.Module) -> Iterator[str]:
    """Yield the functions that keep every result: `cache`, or `lru_cache(maxsize=None)`, on a function of arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            takes = node.args
            has_arguments = bool(takes.posonlyargs or takes.args or takes.kwonlyargs or takes.vararg or takes.kwarg)
            if has_arguments and any(is_unbounded(each) for each in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and is_unbounded(node.value.func):
            yield ast.unparse(node.targets[0])


def is_unbounded(decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call):
        return ast.unparse(decorator) in {"cache", "functools.cache"}
    size = [*decorator.args, *(each.value for each in decorator.keywords if each.arg == "maxsize")]
    is_lru = ast.unparse(decorator.func) in {"lru_cache", "functools.lru_cache"}
    return is_lru and bool(size) and isinstance(size[0], ast.Constant) and size[0].value is None


def growing_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module whose values grow in its functions, without a comparison of their length."""
    names = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and "Weak" not in ast.unparse(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    if names.isdisjoint(name for node in ast.walk(tree) for name in grown_by(node)):
        return
    compared = {
        call.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "len" and isinstance(call.args[0], ast.Name)
    }
    grown = set[str]()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            own = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
            own |= {
                each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            grown |= {name for node in ast.walk(function) for name in grown_by(node)} & (names - own)
    yield from sorted(grown - compared)


def grown_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        grown: ast.expr | None = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS and node.args:
        grown = node.func.value
    else:
        grown = None
    if isinstance(grown, ast.Name):
        yield grown.id


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_caches_and_collections_of_a_module_have_a_bound(package: Path) -> None:
    caches, growing = set[str](), set[str]()
    for path in package.rglob("*.py"):
        tree, module = parsed(path), module_name(path)
        caches |= {f"{module}.{name}" for name in unbounded_caches(tree)}
        growing |= {f"{module}.{name}" for name in growing_names(tree)}
    assert not caches, f"give it a bound, lru_cache(maxsize=...): {sorted(caches)}"
    assert growing <= set(BOUNDED_OTHERWISE), (
        f"{sorted(growing - set(BOUNDED_OTHERWISE))}: it grows with use; keep it in the object that it belongs to, or "
        "compare its length with a _MAX_ constant and drop the oldest entries"
    )


@pytest.mark.parametrize(
    ("source", "caches", "growing"),
    [
        ("@cache\ndef f(text): ...", ["f"], []),
        ("@functools.cache\ndef f(*texts): ...", ["f"], []),
        ("@lru_cache(None)\ndef f(text): ...", ["f"], []),
        ("@lru_cache(maxsize=None)\ndef f(text): ...", ["f"], []),
        ("f = lru_cache(maxsize=None)(g)", ["f"], []),
        ("@cache\ndef f(): ...", [], []),
        ("@lru_cache(maxsize=64)\ndef f(text): ...", [], []),
        ("@lru_cache\ndef f(text): ...", [], []),
        ("KNOWN = {}\ndef f(text): KNOWN[text] = 1", [], ["KNOWN"]),
        ("KNOWN: set[str] = set()\nasync def f(text): KNOWN.add(text)", [], ["KNOWN"]),
        ("KNOWN = {}\ndef f(text):\n  if len(KNOWN) > 9: KNOWN.clear()\n  KNOWN[text] = 1", [], []),
        ("KNOWN = WeakKeyDictionary()\ndef f(text): KNOWN[text] = 1", [], []),
        ("KNOWN = {}\ndef f(KNOWN): KNOWN[1] = 1", [], []),
        ("KNOWN = {}\nKNOWN['a'] = 1", [], []),
    ],
)
def test_a_cache_without_a_bound_is_found(source: str, caches: list[str], growing: list[str]) -> None:
    tree = ast.parse(source)
    assert (list(unbounded_caches(tree)), list(growing_names(tree))) == (caches, growing)
