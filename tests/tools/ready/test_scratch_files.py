"""Files of a task: shared by agents, separate for users, and written for long results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkit import Agent, ScriptedModel, ToolCall
from agentkit.tools import ScratchFiles, ToolContext, ToolDefinitionError, ToolError, ToolResult, tool


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def stores(tmp_path: Path) -> list[ScratchFiles]:
    return [ScratchFiles(), ScratchFiles(tmp_path / "task" / "files")]


def results(files: ScratchFiles, *calls: ToolCall | list[ToolCall], user: str = "") -> list[str]:
    result = Agent(ScriptedModel([*calls, "Done."]), tools=[files]).run_sync("Hi", tenant="local", user=user)
    return [message.text for message in result.messages if message.role == "tool"]


def test_files_are_written_listed_searched_and_read(tmp_path: Path) -> None:
    for files in stores(tmp_path):
        texts = results(
            files,
            call("list_files"),
            call("write_file", path="notes/a.md", content="one\ntwo"),
            call("write_file", path="notes/a.md", content="three"),
            call("write_file", path="notes/a.md", content="one\nfour", overwrite=True),
            call("list_files"),
            call("search_files", text="FOUR"),
            call("read_file", path="notes/a.md", start=4, length=2),
            call("read_file", path="notes/b.md"),
            call("list_files", path="other"),
            call("write_file", path="notes/a.md/b", content="x"),
            call("write_file", path="notes", content="x"),
        )
        assert texts[0] == "nothing"
        assert "exists" in texts[2]
        assert texts[4] == "notes/\nnotes/a.md (8 bytes)"
        assert texts[5] == "notes/a.md:2: four"
        assert texts[6] == "fo\n[Characters 4 to 6 of 8; 2 characters follow.]"
        assert all(text.startswith('{"error"') or "failed" in text for text in texts[7:]), texts[7:]
        assert files.text("notes/a.md") == "one\nfour"
    assert (tmp_path / "task" / "files" / "notes" / "a.md").read_text() == "one\nfour"


def test_no_path_leads_out_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "secret").write_text("secret")
    for files in stores(tmp_path):
        for path in ("../secret", "/etc/passwd", ".hidden", "a\nb", "C:\\x", "", "a/"):
            with pytest.raises(ToolError):
                files.text(path)
            [text] = results(files, call("write_file", path=path, content="x"))
            assert "is not a file" in text, path


def test_users_have_separate_files(tmp_path: Path) -> None:
    for files in stores(tmp_path):
        results(files, call("write_file", path="a.md", content="of ada"), user="ada")
        [others, hidden] = results(files, call("list_files"), call("search_files", text="ada"), user="bob")
        assert (others, hidden) == ("nothing", "no line contains the text")
        assert results(files, call("list_files")) == ["nothing"]
        assert results(files, call("list_files"), user="ada") == ["a.md (6 bytes)"]
        assert files.text("a.md", user="ada") == "of ada"


def test_a_long_result_becomes_a_file(tmp_path: Path) -> None:
    @tool(max_result_chars=900)
    def page(size: int) -> str:
        """Return a page."""
        return "".join([f"{number:4}\n" for number in range(size // 5)])

    @tool
    def fails() -> ToolResult:
        """Fail."""
        return ToolResult("", "fails", "x" * 200, "error")

    for files in stores(tmp_path):
        model = ScriptedModel([call("page", size=50), call("page", size=2_000), call("fails"), "Done."])
        agent = Agent(model, tools=[*files.saving([page, fails], over=100, start=10), *files])
        short, long, failure = [each.text for each in agent.run_sync("Hi").messages if each.role == "tool"]
        assert short.count("\n") == 10
        assert len(failure) == 200
        assert long.startswith("   0\n   1\n\n[The result has 2,000 characters. Read more")
        path = long.split('path="')[1].split('"')[0]
        assert files.text(path).endswith(" 399\n")


def test_an_agent_as_a_tool_shares_files_and_returns_a_file() -> None:
    files = ScratchFiles()
    inner = Agent(
        ScriptedModel([call("write_file", path="found.md", content="A source."), "word " * 400]),
        tools=[files],
        name="inner",
    )
    research = inner.as_tool(name="research", description="Research.", max_result_chars=1_000)
    outer = ScriptedModel([call("research", input="x"), call("read_file", path="found.md"), "Done."])
    agent = Agent(outer, tools=[*files.saving([research], over=500, start=9), *files])
    long, found = [each.text for each in agent.run_sync("Hi", user="ada").messages if each.role == "tool"]
    assert long.startswith("word word\n[The result has 2,000 characters.")
    assert found.startswith("A source.\n")
    assert files.text(long.split('path="')[1].split('"')[0], user="ada").startswith("word word word")


def test_a_result_that_fits_no_file_is_returned(tmp_path: Path) -> None:
    @tool
    def page() -> str:
        """Return a page."""
        return "x" * 500

    for files in (ScratchFiles(max_bytes=100), ScratchFiles(tmp_path, max_bytes=100)):
        model = ScriptedModel([call("page"), "Done."])
        result = Agent(model, tools=files.saving([page], over=10)).run_sync("Hi")
        assert result.messages[2].text == "x" * 500


def test_the_answer_of_a_final_tool_is_complete() -> None:
    @tool(final=True)
    def answer() -> str:
        """Answer."""
        return "x" * 500

    files = ScratchFiles()
    agent = Agent(ScriptedModel([call("answer")]), tools=files.saving([answer], over=10))
    assert agent.run_sync("Hi").output == "x" * 500


def test_files_in_memory_are_limited() -> None:
    files = ScratchFiles(max_bytes=10)
    calls = [call("write_file", path=f"{number}", content="x" * 10) for number in range(51)]
    texts = results(files, calls)
    assert [text for text in texts if "failed" in text or "error" in text] == texts[50:]


def test_a_path_has_a_limited_number_of_folders(tmp_path: Path) -> None:
    files = ScratchFiles()
    most, more = "a/" * 32 + "x", "b/" * 33 + "x"
    texts = results(files, *[call("write_file", path=path, content="x") for path in (most, more)], call("list_files"))
    assert "wrote" in texts[0] and "32" in texts[1] and len(texts[2].split("\n")) == 33


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cases: list[Callable[[], object]] = [
        lambda: ScratchFiles(5),  # type: ignore[arg-type]
        lambda: ScratchFiles(max_bytes=0),
        lambda: ScratchFiles(tmp_path / "file" / "inner"),
        lambda: ScratchFiles(tmp_path / "file"),
        lambda: ScratchFiles().saving([], over=0, start=-1),
    ]
    for make in cases:
        with pytest.raises(ToolDefinitionError):
            make()


async def test_a_tool_can_be_called_with_a_context() -> None:
    files = ScratchFiles()
    written = await files["write_file"].call(call("write_file", path="a", content=""), ToolContext(None))
    assert written.ok
    read = await files["read_file"].call(call("read_file", path="a"), ToolContext(None))
    assert read.ok
