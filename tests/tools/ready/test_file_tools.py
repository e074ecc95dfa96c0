"""`file_tools`: text files below one folder, and no way out of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentkit.prompts import ToolCall
from agentkit.tools import ToolContext, ToolDefinitionError, ToolError, ToolResult, Toolset, file_tools
from agentkit_tools.ready.folder import Folder
from tests.effort import tries
from tests.waiting import LONG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs files that are opened relative to a folder")

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a secret next to it, and links of every kind that lead there."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file.txt").write_text(SECRET)
    inside = tmp_path / "inside"
    (inside / "docs" / "deep").mkdir(parents=True)
    (inside / "notes.md").write_text("first\nSecond line\nthird\n")
    (inside / "docs" / "guide.md").write_text("A guide.\nIt is second to none.\n")
    (inside / "docs" / "deep" / "end.txt").write_text("no line break at the end")
    (inside / "picture.png").write_bytes(b"\x89PNG\r\n\0\0second")
    (inside / "latin.txt").write_bytes("für".encode("latin-1"))
    (inside / ".env").write_text("KEY=second")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text("second")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "up").symlink_to(tmp_path)
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "within.md").symlink_to("notes.md")
    os.link(tmp_path / "secret.txt", inside / "hard.txt")
    os.mkfifo(inside / "pipe")
    return inside


async def ask(tools: Toolset, name: str, **arguments: Any) -> ToolResult:
    one = next(tool for tool in tools if tool.name == name)
    return await one.call(ToolCall("c", name, json.dumps(arguments)), ToolContext(None))


async def reply(tools: Toolset, name: str, **arguments: Any) -> str:
    result = await ask(tools, name, **arguments)
    assert result.status == "success", result.content
    return str(result.content)


def test_writing_is_offered_only_with_an_option(root: Path) -> None:
    assert [tool.name for tool in file_tools(root)] == ["read_file", "list_files", "search_files"]
    *_, write = file_tools(root, write=True)
    assert (write.name, write.policy.sequential, write.policy.timeout) == ("write_file", True, 30.0)


def test_the_description_of_every_tool_contains_its_limits(root: Path) -> None:
    assert all("Cannot" in tool.description for tool in file_tools(root, write=True))


async def test_a_file_is_read_completely_or_in_lines(root: Path) -> None:
    tools = file_tools(root)
    assert await reply(tools, "read_file", path="notes.md") == "first\nSecond line\nthird\n"
    assert await reply(tools, "read_file", path="./docs//guide.md") == "A guide.\nIt is second to none.\n"
    part = await reply(tools, "read_file", path="notes.md", first_line=2, lines=1)
    assert part == "Second line\n[lines 2 to 2 of 3]"
    end = await reply(tools, "read_file", path="docs/deep/end.txt", lines=1)
    assert end == "no line break at the end"
    (root / "long.txt").write_text("x\n" * 5_000 + "end")
    assert (await reply(tools, "read_file", path="long.txt")).endswith("x\n[lines 1 to 2000 of 5001]")
    assert (await reply(tools, "read_file", path="long.txt", first_line=5001)) == "end\n[lines 5001 to 5001 of 5001]"
    assert "has 3 lines" in str((await ask(tools, "read_file", path="notes.md", first_line=4)).content)
    assert "must be 1 or more" in str((await ask(tools, "read_file", path="notes.md", lines=0)).content)


async def test_a_file_that_is_not_text_or_too_large_is_an_error(root: Path) -> None:
    tools = file_tools(root, max_bytes=20)
    for path in ("picture.png", "latin.txt"):
        assert "is not UTF-8 text" in str((await ask(tools, "read_file", path=path)).content)
    assert "more than 20 bytes: too large" in str((await ask(tools, "read_file", path="notes.md")).content)
    written = await ask(file_tools(root, write=True, max_bytes=20), "write_file", path="big.txt", content="x" * 21)
    assert "has 21 bytes, at most 20" in str(written.content)
    assert not (root / "big.txt").exists()


async def test_a_folder_is_listed_in_order_without_hidden_files(root: Path) -> None:
    tools = file_tools(root)
    assert (await reply(tools, "list_files")).split("\n") == [
        "docs/",
        "hard.txt (18 bytes)",
        "latin.txt (3 bytes)",
        "link.txt (link, cannot be opened)",
        "loop (link, cannot be opened)",
        "notes.md (24 bytes)",
        "picture.png (14 bytes)",
        "pipe (special, cannot be opened)",
        "up (link, cannot be opened)",
        "within.md (link, cannot be opened)",
    ]
    assert await reply(tools, "list_files", pattern="*.md", recursive=True) == (
        "docs/guide.md (31 bytes)\nnotes.md (24 bytes)\nwithin.md (link, cannot be opened)"
    )
    assert await reply(tools, "list_files", path="docs/deep") == "docs/deep/end.txt (24 bytes)"
    assert await reply(tools, "list_files", pattern="nothing*") == "nothing"
    assert ".env (10 bytes)" in await reply(file_tools(root, hidden=True), "list_files")


async def test_a_search_finds_lines_in_text_files_only(root: Path) -> None:
    tools = file_tools(root)
    assert (await reply(tools, "search_files", text="SECOND")).split("\n") == [
        "docs/guide.md:2: It is second to none.",
        "notes.md:2: Second line",
        "[3 files were not searched: not text, or too large]",
    ]
    assert await reply(tools, "search_files", text="second", path="docs", match_case=True, pattern="*.md") == (
        "docs/guide.md:2: It is second to none."
    )
    assert await reply(tools, "search_files", text="secret outside", pattern="*.md") == "no line contains the text"
    assert (await reply(tools, "search_files", text="secret outside")).startswith("no line contains the text\n[3 files")
    assert ".env:1: KEY=second" in await reply(file_tools(root, hidden=True), "search_files", text="second")
    for text in ("", "a\nb"):
        assert "must not be empty" in str((await ask(tools, "search_files", text=text)).content)
    assert "at most 1000" in str((await ask(tools, "list_files", pattern="*" * 1_001)).content)


async def test_long_lists_and_many_matches_end_with_a_note(root: Path) -> None:
    (root / "many").mkdir()
    for number in range(1_001):
        (root / "many" / f"{number:04}.txt").write_text("needle\n")
    tools = file_tools(root)
    listed = (await reply(tools, "list_files", path="many")).split("\n")
    assert len(listed) == 1_001
    assert listed[-1].startswith("[incomplete: only the first 1,000")
    found = (await reply(tools, "search_files", text="needle", path="many")).split("\n")
    assert len(found) == 201
    assert found[-1].startswith("[incomplete")


async def test_a_search_collects_only_the_lines_that_it_shows(root: Path) -> None:
    name = "n" * 200
    (root / name).write_text("needle\n" * 20_000)
    tools = file_tools(root)
    tracemalloc.start()
    try:
        found = (await reply(tools, "search_files", text="needle", pattern="nn*")).split("\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 201 and found[:200] == [f"{name}:{line}: needle" for line in range(1, 201)]
    assert found[-1].startswith("[incomplete") and peak < 4_000_000


async def test_a_search_ends_at_its_maximum_of_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_tools.ready.file_tools.MAX_ENTRIES", 1)
    found = (await reply(file_tools(root), "search_files", text="e", pattern="*.md")).split("\n")
    assert found[-1] == "[incomplete: only the first 1 files were searched; search a folder inside]"
    assert all(line.startswith("docs/guide.md:") for line in found[:-1])
    assert (await reply(file_tools(root), "list_files")).endswith("only the first 1 are listed; list a folder inside]")


async def test_names_that_could_be_mistaken_for_lines_are_quoted(root: Path) -> None:
    (root / "docs" / "a\nsecret.txt (5 bytes)").write_text("x")
    (root / "docs" / os.fsdecode(b"bytes-\xff")).write_text("x")
    listed = (await reply(file_tools(root), "list_files", path="docs")).split("\n")
    assert '"docs/a\\nsecret.txt (5 bytes)" (1 bytes)' in listed
    assert '"docs/bytes-\\udcff" (1 bytes)' in listed


async def test_a_file_is_written_once_and_replaced_only_on_demand(root: Path) -> None:
    tools = file_tools(root, write=True)
    assert await reply(tools, "write_file", path="new/folder/a.txt", content="ä") == "wrote 2 bytes to new/folder/a.txt"
    assert (root / "new" / "folder" / "a.txt").read_text("utf-8") == "ä"
    again = await ask(tools, "write_file", path="new/folder/a.txt", content="b")
    assert "exists: set overwrite" in str(again.content)
    (root / "notes.md").chmod(0o640)
    await reply(tools, "write_file", path="notes.md", content="replaced", overwrite=True)
    assert (root / "notes.md").read_text() == "replaced"
    assert (root / "notes.md").stat().st_mode & 0o777 == 0o640
    assert not list(root.rglob(".*.part"))


OUTSIDE = [
    "../secret.txt",
    "docs/../../secret.txt",
    "docs/..",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "..\\secret.txt",
    "docs\\..\\..\\secret.txt",
    "C:/Windows/win.ini",
    "C:secret.txt",
    "\\\\server\\share\\file",
    "notes.md\0.png",
    "\0",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "..%c0%afsecret.txt",
    "．．/secret.txt",
    "‥/secret.txt",
    "..;/secret.txt",
    "....//secret.txt",
    "~/secret.txt",
    "~root/.bashrc",
    "$HOME/secret.txt",
    "file:///etc/passwd",
    "link.txt",
    "up/secret.txt",
    "up/inside/notes.md",
    "up",
    "loop",
    "loop/x",
    "within.md",
    "hard.txt",
    "pipe",
    ".env",
    ".git/config",
    "docs/.hidden",
    "",
    ".",
    "docs",
    "notes.md/",
    "notes.md/x",
    "docs/",
    "x" * 300,
    "x/" * 600,
    "a\nb",
    "\udc80",
    "missing.txt",
]


async def test_no_path_reads_a_file_outside_of_the_folder(root: Path) -> None:
    tools = file_tools(root, timeout=LONG)
    failures: list[str] = []
    for path in OUTSIDE:
        result = await ask(tools, "read_file", path=path)
        shown = str(result.content)
        if result.status != "error" or SECRET in shown or str(root) in shown:
            failures.append(path)
    assert failures == []


async def test_no_path_writes_a_file_outside_of_the_folder(root: Path) -> None:
    before = sorted(root.rglob("*"))
    tools = file_tools(root, write=True, timeout=LONG)
    failures: list[str] = []
    for path in OUTSIDE:
        is_new_name = any(step in path for step in ("%", "．", "‥", ";", "....", "~", "$", "missing", "file:"))
        if is_new_name:  # an ordinary name in this folder, which may be written
            continue
        result = await ask(tools, "write_file", path=path, content="overwritten", overwrite=True)
        if result.status != "error" or sorted(root.rglob("*")) != before:
            failures.append(path)
    assert failures == []
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert sorted(item.name for item in root.parent.iterdir()) == ["inside", "outside", "secret.txt"]


@pytest.mark.parametrize("path", ["up", "up/outside", "..", "/", "loop", "notes.md", ".git", "missing", "link.txt"])
async def test_no_folder_outside_is_listed_or_searched(root: Path, path: str) -> None:
    tools = file_tools(root)
    for result in (
        await ask(tools, "list_files", path=path, recursive=True),
        await ask(tools, "search_files", path=path, text="e"),
    ):
        assert result.status == "error"
        assert "secret" not in str(result.content)
    assert "secret outside" not in await reply(tools, "search_files", text="e")


async def test_a_device_or_a_pipe_is_not_opened(root: Path) -> None:
    assert "not a file but a special" in str((await ask(file_tools(root), "read_file", path="pipe")).content)


STEPS = st.sampled_from(["..", ".", "docs", "up", "link.txt", "notes.md", "hard.txt", "", "secret.txt", "outside", "~"])


@settings(max_examples=tries(50, 150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=6).map("/".join) | st.text(max_size=12))
def test_no_combination_of_steps_shows_the_secret(root: Path, path: str) -> None:
    by_name = {tool.name: tool for tool in file_tools(root)}
    for name in ("read_file", "list_files"):
        try:
            shown = by_name[name](path)
        except ToolError:
            continue
        assert SECRET not in shown
        assert "outside/" not in shown


async def test_links_that_appear_while_a_tool_runs_are_not_followed(root: Path) -> None:
    """A second thread turns a file and a folder into links to the outside and back, as fast as it can."""
    tools = file_tools(root, write=True)
    outside = root.parent / "outside"
    done = threading.Event()

    (root / "race").mkdir()
    (root / "race" / "file.txt").write_text("inside")
    (root / "race.txt").write_text("inside")
    (root / "race.link").symlink_to(outside)
    (root / "race.txt.link").symlink_to(root.parent / "secret.txt")
    swaps = 0

    def put(what: Path, here: Path) -> None:
        while True:
            try:
                what.rename(here)
                return
            except OSError:  # the tool created a folder of that name in the gap
                shutil.rmtree(here, ignore_errors=True)

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            for name in ("race", "race.txt"):
                here, real, link = (root / f"{name}{end}" for end in ("", ".real", ".link"))
                here.rename(real)
                put(link, here)
                here.rename(link)
                put(real, here)
            swaps += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(150):
            for result in (
                await ask(tools, "read_file", path="race.txt"),
                await ask(tools, "read_file", path="race/file.txt"),
                await ask(tools, "write_file", path="race/file.txt", content="inside", overwrite=True),
                await ask(tools, "write_file", path="race/other.txt", content="inside", overwrite=True),
                await ask(tools, "search_files", path="race", text=SECRET),
            ):
                assert SECRET not in str(result.content).replace("line contains the text", "")
    finally:
        done.set()
        swapper.join()
    assert swaps > 100
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert {item.name: item.read_text() for item in outside.iterdir()} == {"file.txt": SECRET}


async def test_very_deep_folders_end_the_walk_and_not_the_tool(root: Path) -> None:
    deep = root
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    listed = (await reply(file_tools(root), "list_files", path="d", recursive=True)).split("\n")
    assert len(listed) == 33
    assert listed[-1] == "d/" * 34


async def test_a_folder_that_cannot_be_read_is_listed_but_not_entered(root: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser may read everything")
    (root / "docs" / "deep").chmod(0)
    try:
        listed = await reply(file_tools(root), "list_files", path="docs", recursive=True)
        assert "docs/deep/" in listed
        assert "end.txt" not in listed
        assert "Permission denied" in str((await ask(file_tools(root), "list_files", path="docs/deep")).content)
    finally:
        (root / "docs" / "deep").chmod(0o700)


def test_a_write_that_fails_leaves_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = Folder(root)
    before = sorted(root.rglob("*"))
    for name in ("fchmod", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, lambda *_, **__: full())
            with pytest.raises(ToolError):
                folder.write("notes.md", b"new", overwrite=True)
        assert sorted(root.rglob("*")) == before
        assert (root / "notes.md").read_text().startswith("first")


@pytest.mark.parametrize("wrong", ["missing", "notes.md", "loop", "a\0b"])
def test_a_root_that_is_not_a_folder_is_refused(root: Path, wrong: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        file_tools(root / wrong)
    assert caught.value.names == ("root",)


def test_a_root_may_be_reached_through_a_link_of_its_owner(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    read, *_ = file_tools(tmp_path / "alias")
    assert read("docs/guide.md").startswith("A guide.")


def test_invalid_limits_and_systems_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        file_tools(root, max_bytes=0)
    assert caught.value.names == ("max_bytes",)
    monkeypatch.setattr(os, "supports_dir_fd", set())
    with pytest.raises(ToolDefinitionError) as unsupported:
        file_tools(root)
    assert unsupported.value.names == ()
