"""Ingestion of files: unchanged files are skipped, changed files replaced, invalid files reported."""

from __future__ import annotations

import os
import random
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import IngestError, IngestOptions, Memory, Scope
from agentkit.testing import StoreProbe
from agentkit_memory.checks import MAX_BYTES
from agentkit_memory.database.engine import Database
from agentkit_memory.ingest import find_files as files
from agentkit_memory.ingest.document_removal import remove_gone
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.report import IngestProgress
from agentkit_memory.ingest.source_file import SourceFile
from tests.effort import unless_fresh
from tests.raising import raises


def texts(memory: Memory) -> dict[str, list[str]]:
    """Return all stored chunks, also of incomplete documents, by source."""
    found: dict[str, list[str]] = {}
    rows = StoreProbe(memory).rows(
        "SELECT d.source, i.text FROM items i JOIN documents d ON d.id = i.document_id ORDER BY 1, i.position"
    )
    for source, content in rows:
        found.setdefault(Path(source).name, []).append(content)
    return found


def outbox(memory: Memory) -> list[tuple[int, int]]:
    return [(want, have) for want, have in StoreProbe(memory).rows("SELECT want, have FROM vector_state")]


def test_a_folder_is_read_in_order_without_hidden_and_binary_files(memory: Memory, docs: Path) -> None:
    (docs / "b.txt").write_text("beta")
    (docs / "a.md").write_text("# Alpha\nalpha")
    (docs / "image.png").write_bytes(b"\x89PNG\0")
    (docs / ".hidden.md").write_text("hidden")
    (docs / ".git").mkdir()
    (docs / ".git" / "x.md").write_text("hidden")
    (docs / "sub").mkdir()
    (docs / "sub" / "c.md").write_text("gamma")
    seen: list[IngestProgress] = []
    report = memory.ingest(docs, on_progress=seen.append)
    assert [Path(name).name for name in report.added] == ["a.md", "b.txt", "c.md"]
    assert (report.files, report.chunks, report.pending, report.errors) == (3, 3, 0, ())
    assert [(step.done, step.total, Path(step.source).name, step.chunks) for step in seen] == [
        (1, 3, "a.md", 1),
        (2, 3, "b.txt", 2),
        (3, 3, "c.md", 3),
    ]


def test_a_named_file_is_read_once_with_any_suffix(memory: Memory, docs: Path) -> None:
    script = docs / "run.py"
    script.write_text("# a comment, not a heading\nprint('zebra')\n")
    link = docs / "link.md"
    link.symlink_to(script)
    report = memory.ingest([str(script), script, docs / ".." / "docs" / "run.py", link])
    assert (report.added, report.unchanged) == ((str(script),), ())
    assert memory.recall("zebra")[0].title == ""


def test_unchanged_files_are_skipped_and_changed_files_are_replaced(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text("# One\nzebra\n\n# Two\nviolin\n")
    first = either.ingest(docs)
    ids = {found.text: found.id for found in either.recall("zebra violin")}
    assert (len(first.added), either.ingest(docs).unchanged) == (1, first.added)

    file.write_text("# Zero\nquartz\n\n# One\nzebra\n\n# Two\nharbor\n")
    report = either.ingest(docs)
    assert (report.changed, report.added, report.chunks) == (first.added, (), 3)
    assert either.recall("violin") == ()
    (zebra,) = either.recall("zebra")
    assert zebra.id == ids["# One\nzebra"]  # an equal text keeps its id
    assert (zebra.position, zebra.metadata["line"]) == (1, 4)
    assert file.read_text()[zebra.metadata["start"] : zebra.metadata["end"]] == zebra.text


def test_a_chunk_that_is_removed_and_returns_is_found_again(either: Memory, docs: Path) -> None:
    file = docs / "a.txt"
    for content, hits in (("zebra", 1), ("violin", 0), ("zebra", 1), ("", 0), ("zebra", 1)):
        file.write_text(content)
        either.ingest(file)
        assert len(either.recall("zebra")) == hits
    assert outbox(either) == [(1, 1)]


def test_equal_texts_in_a_document_are_two_chunks(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("# Same\nzebra\n\n# Same\nzebra\n")
    assert memory.ingest(docs).chunks == 2
    assert len(texts(memory)["a.md"]) == 2
    assert len(memory.recall("zebra")) == 1  # but the text is recalled once


def test_a_file_that_is_missing_in_its_folder_is_forgotten(either: Memory, docs: Path, tmp_path: Path) -> None:
    beside = tmp_path / "docs-2.txt"
    beside.write_text("zebra beside")
    named = docs / "named.py"
    named.write_text("zebra named")
    (docs / "a.md").write_text("zebra here")
    (docs / "b ü%.md").write_text("zebra there")
    either.ingest([docs, named, beside])
    (docs / "b ü%.md").unlink()
    beside.unlink()
    report = either.ingest(docs)
    assert [Path(name).name for name in report.removed] == ["b ü%.md"]
    assert {found.text for found in either.recall("zebra")} == {"zebra here", "zebra named", "zebra beside"}


def test_a_file_that_became_a_folder_or_moved_to_a_skipped_folder_is_forgotten(either: Memory, docs: Path) -> None:
    for name in ("a.md", "b.md", "c.md", "d.md"):
        (docs / name).write_text(f"zebra {name}")
    either.ingest(docs)
    (docs / "a.md").unlink()
    (docs / "a.md").mkdir()
    (docs / "a.md" / "new.md").write_text("zebra inside")
    for skipped, name in (("node_modules", "b.md"), (".git", "c.md")):
        (docs / skipped).mkdir()
        (docs / name).rename(docs / skipped / name)
    report = either.ingest(docs)
    assert [Path(name).name for name in report.removed] == ["a.md", "b.md", "c.md"]
    assert {found.text for found in either.recall("zebra")} == {"zebra d.md", "zebra inside"}
    (docs / "a.md" / "new.md").unlink()
    (docs / "a.md").rmdir()
    (docs / "a.md").write_text("zebra again")
    report = either.ingest(docs)
    assert [str(Path(name).relative_to(docs)) for name in (*report.added, *report.removed)] == ["a.md", "a.md/new.md"]


def test_a_link_is_a_file_of_its_folder_and_is_forgotten_with_it(memory: Memory, docs: Path) -> None:
    (docs / "x.bin").write_text("zebra elsewhere")
    (docs / "y.bin").write_text("violin elsewhere")
    link = docs / "link.md"
    link.symlink_to(docs / "x.bin")
    assert memory.ingest(docs).added == (str(link),)
    link.unlink()
    assert memory.ingest(docs).removed == (str(link),)
    assert memory.recall("zebra") == ()

    link.symlink_to("y.bin")
    memory.ingest(docs)
    assert (memory.recall("zebra"), len(texts(memory)["link.md"])) == ((), 1)
    link.unlink()
    link.symlink_to(docs / "nothing.md")
    report = memory.ingest(docs)
    assert (report.removed, len(report.errors)) == ((str(link),), 1)  # the target is missing, which is reported
    assert "link.md" not in texts(memory)


def test_a_link_to_a_target_outside_of_its_folder_is_not_stored(memory: Memory, docs: Path, tmp_path: Path) -> None:
    out = tmp_path / f"{docs.name}-beside"
    out.mkdir()
    (out / "x.md").write_text("zebra elsewhere")
    (docs / "inner").mkdir()
    (docs / "a.md").write_text("plain")
    links = {
        docs / "absolute.txt": out / "x.md",
        docs / "inner/relative.md": Path("../..") / out.name / "x.md",
        docs / "system.txt": Path("/etc/passwd"),
        docs / "through.md": docs / "absolute.txt",
    }
    for link, target in links.items():
        link.symlink_to(target)
    for given in (docs, str(docs / "inner" / "..")):
        report = memory.ingest(given)
        assert len(report.errors) == 4
        assert all("is a link that leads out of" in str(error) for error in report.errors)
        assert set(texts(memory)) == {"a.md"}
    named = docs / "absolute.txt"
    assert memory.ingest(named).added == (str(named),)  # the user named it
    assert [found.source for found in memory.recall("zebra")] == [str(named)]


def test_a_file_that_became_a_link_to_the_outside_is_removed(memory: Memory, docs: Path, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("zebra elsewhere")
    link = docs / "a.md"
    link.write_text("zebra here")
    memory.ingest(docs)
    link.unlink()
    link.symlink_to(tmp_path / "x.md")
    report = memory.ingest(docs)
    assert (report.removed, len(report.errors)) == ((str(link),), 1)
    assert memory.recall("zebra") == ()


def test_a_file_with_a_new_path_is_removed_under_its_old_path(memory: Memory, docs: Path, tmp_path: Path) -> None:
    (docs / "sub").mkdir()
    (docs / "sub" / "a.md").write_text("zebra below")
    (docs / "b.md").write_text("zebra above")
    memory.ingest(docs)
    (docs / "sub").rename(tmp_path / "apart")
    (docs / "sub").symlink_to(tmp_path / "apart", target_is_directory=True)
    assert memory.ingest(docs).removed == (str(docs / "sub" / "a.md"),)
    docs.rename(tmp_path / "moved")
    docs.symlink_to(tmp_path / "moved", target_is_directory=True)
    report = memory.ingest(docs)
    assert report.added == report.removed == (str(docs / "b.md"),)
    assert texts(memory) == {"b.md": ["zebra above"]}


def test_folders_that_differ_in_case_are_separate_on_a_case_sensitive_disk(either: Memory, tmp_path: Path) -> None:
    upper, lower = tmp_path / "X", tmp_path / "x"
    upper.mkdir()
    if lower.exists():
        pytest.skip("case does not count in this file system")
    lower.mkdir()
    (upper / "a.md").write_text("zebra up")
    (lower / "a.md").write_text("zebra down")
    either.ingest([upper, lower])
    (upper / "a.md").unlink()
    (lower / "a.md").unlink()
    assert either.ingest(upper).removed == (str(upper / "a.md"),)
    assert [found.text for found in either.recall("zebra")] == ["zebra down"]


def test_folders_that_differ_in_case_are_one_if_the_disk_reports_the_same_folder(
    either: Memory, database: Database, docs: Path
) -> None:
    (docs / "a.md").write_text("zebra")
    either.ingest(docs)
    scope = StoreProbe(either).scope_number
    shouted = docs.as_uri().removesuffix("docs") + "DOCS"
    assert remove_gone(database, scope, shouted, lambda uri: True, lambda uri, other: False) == []
    assert remove_gone(database, scope, shouted, lambda uri: True, lambda uri, other: True) == [str(docs / "a.md")]
    (docs.parent / "also").symlink_to(docs, target_is_directory=True)
    assert files.is_same_folder(docs.as_uri(), (docs.parent / "also").as_uri())
    assert not files.is_same_folder(docs.as_uri(), docs.parent.as_uri())
    assert not files.is_same_folder(docs.as_uri(), (docs / "nowhere").as_uri())


def test_a_file_belongs_to_the_scope_it_was_ingested_in(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    user = memory.within(Scope("local", user="u"))
    assert user.ingest(docs).added and memory.ingest(docs).added
    (docs / "a.md").unlink()
    assert memory.ingest(docs).removed
    assert [found.text for found in user.recall("zebra")] == ["zebra"]
    assert memory.recall("zebra") == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\0\0", "is binary (a zero byte at offset 4)"),
        (b"\x89PNG\0", "is binary (a zero byte at offset 4)"),
        (b"caf\xe9", "is not UTF-8 text (byte 3); convert it first"),
        (b"\xef\xbb\xbfcaf\xe9s", "is not UTF-8 text (byte 6); convert it first"),
        (b"a" * 300_000 + b"\xff", "is not UTF-8 text (byte 300000); convert it first"),
        (b"a" * 262_143 + "é".encode() + b"\xff", "is not UTF-8 text (byte 262145); convert it first"),
        (b"\xff\xfea\x00b", "is not UTF-16-LE text (byte 4)"),
        (b"\xff\xfea\x00\x00\x00", "contains NUL characters; pass a text file"),
    ],
)
def test_an_invalid_file_is_reported_and_the_others_are_ingested(
    memory: Memory, docs: Path, content: bytes, said: str
) -> None:
    (docs / "a.md").write_text("alpha")
    (docs / "bad.md").write_bytes(b"old zebra")
    (docs / "c.md").write_text("gamma")
    memory.ingest(docs)
    (docs / "bad.md").write_bytes(content)
    (docs / "c.md").write_text("gamma ray")
    report = memory.ingest(docs)
    (error,) = report.errors
    assert error.source == str(docs / "bad.md")
    assert str(error).startswith(f"{docs / 'bad.md'}: {said}")
    assert (len(report.unchanged), len(report.changed)) == (1, 1)
    assert [found.text for found in memory.recall("zebra")] == ["old zebra"]  # the stored text is kept


def test_missing_and_special_files_are_reported(memory: Memory, docs: Path) -> None:
    os.mkfifo(docs / "pipe.md")
    (docs / "loop.md").symlink_to(docs / "loop.md")
    (docs / "good.md").write_text("zebra")
    report = memory.ingest([docs / "missing.md", docs, docs / "nul\0.md"])
    said = sorted(str(error).removeprefix(str(docs)) for error in report.errors)
    assert len(said) == 4
    assert said[0].startswith("/loop.md: cannot be read")
    assert said[1].startswith("/missing.md: cannot be found or read (No such file")
    assert said[2].startswith("/nul\\x00.md: cannot be found or read")
    assert said[3].startswith("/pipe.md: is not a regular file")
    assert len(memory.recall("zebra")) == 1


def test_only_missing_paths_are_an_error(memory: Memory, docs: Path) -> None:
    named: list[tuple[Any, list[str]]] = [
        (docs / "none", ["none"]),
        (str(docs / "none.md"), ["none.md"]),
        ([docs / "a.md", docs / "b.md"], ["a.md", "b.md"]),
        (docs / "nul\0.md", ["nul\\x00.md"]),
        ([docs / f"{number}.md" for number in range(7)], ["0.md", "4.md", "and 2 others"]),
    ]
    for paths, names in named:
        with pytest.raises(IngestError) as caught:
            memory.ingest(paths)
        assert all(name in str(caught.value) for name in names), caught.value
    assert memory.ingest([]).errors == memory.ingest(docs).errors == ()
    assert not memory.documents.list()


@pytest.mark.skipif(os.name != "posix", reason="file permissions are POSIX's")
def test_unreadable_files_are_reported_and_not_forgotten(memory: Memory, docs: Path) -> None:
    locked = docs / "locked"
    locked.mkdir()
    (locked / "a.md").write_text("zebra inside")
    (docs / "secret.md").write_text("zebra secret")
    memory.ingest(docs)
    for parent in [docs, *docs.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o555)
    locked.chmod(0)
    (docs / "secret.md").chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        found = list(files.find_files([docs]))
        errors = [each for each in found if isinstance(each, Exception)]
        assert [str(error).split(":")[0] for error in errors] == [str(locked)]
        (secret,) = (each for each in found if isinstance(each, SourceFile))
        with raises(IngestError, name="path", value="PermissionError"):
            FileStream(secret, IngestOptions())
        assert not files.is_gone((locked / "a.md").as_uri())
    finally:
        if root:
            os.seteuid(0)
        locked.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="file permissions are POSIX's")
def test_a_named_file_in_an_inaccessible_folder_is_one_error_of_the_report(
    memory: Memory, tmp_path: Path, docs: Path
) -> None:
    (docs / "closed").mkdir()
    for name in ("closed/a.md", "b.md", "c.md"):
        (docs / name).write_text(f"zebra {name}")
    memory.ingest(docs / "c.md")
    for path in [tmp_path, *tmp_path.parents, *tmp_path.rglob("*")]:
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o555)
    root = os.geteuid() == 0
    if root:  # permissions do not apply to root: the process runs as another user for a while
        for path in (memory_home := tmp_path / "store", *memory_home.rglob("*")):
            os.chown(path, 65534, -1)
    (docs / "closed").chmod(0)
    if root:
        os.seteuid(65534)
    try:
        report = memory.ingest([docs / "closed/a.md", docs / "closed", docs / "b.md"])
    finally:
        if root:
            os.seteuid(0)
        (docs / "closed").chmod(0o755)
    assert report.added == (str(docs / "b.md"),) and report.removed == ()
    assert ["Permission denied" in str(error) for error in report.errors] == [True, True]
    assert memory.ingest(docs).added == (str(docs / "closed/a.md"),)


def test_a_file_name_that_is_not_text_can_be_stored(either: Memory, docs: Path) -> None:
    name = os.fsencode(docs) + b"/caf\xe9.md"
    Path(os.fsdecode(name)).write_text("zebra")
    report = either.ingest(docs)
    assert report.errors == ()
    assert either.recall("zebra")[0].source == f"{docs}/caf\\xe9.md"
    Path(os.fsdecode(name)).unlink()
    assert either.ingest(docs).removed == (f"{docs}/caf\\xe9.md",)


def test_a_path_above_the_limit_is_one_error_and_the_longest_path_is_stored(either: Memory, docs: Path) -> None:
    draw = random.Random(1)  # compressible text would be shorter

    def named(length: int) -> Path:
        folder = docs
        while (left := length - len(folder.as_uri())) > 250:
            folder /= "".join(draw.choices(string.ascii_letters, k=min(200, left - 50)))
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{'a' * (left - 4)}.md"

    longest, longer = named(MAX_BYTES), named(MAX_BYTES + 1)
    longest.write_text("zebra deep")
    longer.write_text("zebra deeper")
    (docs / "zz.md").write_text("zebra")
    report = either.ingest(docs)
    assert sorted(report.added) == sorted((str(longest), str(docs / "zz.md")))
    (error,) = report.errors
    assert error.source == str(longer)
    assert "has an address of 2,601 bytes, at most 2,600 can be stored" in str(error)
    assert {found.text for found in either.recall("zebra")} == {"zebra deep", "zebra"}
    longest.unlink()
    assert either.ingest(docs).removed == (str(longest),)


def test_byte_order_marks_are_removed(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_bytes("\ufeff# Título\nzebra".encode())
    (docs / "b.md").write_bytes("# Ünï\nviolin".encode("utf-16"))
    memory.ingest(docs)
    assert memory.recall("zebra")[0].title == "Título"
    assert memory.recall("violin")[0].title == "Ünï"


def test_an_interrupted_ingestion_keeps_its_files_and_continues_later(memory: Memory, docs: Path) -> None:
    for number in range(4):
        (docs / f"{number}.md").write_text(f"zebra {number}")

    def interrupt(progress: IngestProgress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.ingest(docs, on_progress=interrupt)
    assert len(memory.recall("zebra")) == 2
    report = memory.ingest(docs)
    assert (len(report.unchanged), len(report.added)) == (2, 2)


def test_a_large_ingestion_is_indexed_in_parts(memory: Memory, docs: Path) -> None:
    for number in range(3):
        (docs / f"{number}.md").write_text("".join(f"# {number} {part}\nzebra\n" for part in range(1200)))
    held: list[int] = []
    memory.ingest(docs, on_progress=lambda _: held.append(StoreProbe(memory).index.count()))
    assert held == [0] * 4 + [2224] * 5  # indexed after 2,048 chunks or more, in the middle of the second file
    assert StoreProbe(memory).index.count() == 3600


def test_lenient_ingestion_replaces_undecodable_bytes(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_bytes(b"# Caf\xe9\nzebra \xff\xfe" + b"x" * 300_000 + b"\n\xf0\x9f")
    report = either.ingest(docs, options=IngestOptions(lenient=True))
    assert (len(report.added), report.errors) == (1, ())
    assert "bytes that are not UTF-8 text, the first at 5, became U+FFFD" in str(report.repaired[0])
    assert either.recall("zebra")[0].title == "Caf\ufffd"
    again = either.ingest(docs, options=IngestOptions(lenient=True))
    assert (len(again.unchanged), again.repaired) == (1, ())
    assert "is not UTF-8 text (byte 5)" in str(either.ingest(docs).errors[0])
    (docs / "b.md").write_bytes(b"\0")
    assert "is binary" in str(either.ingest(docs, options=IngestOptions(lenient=True)).errors[0])


def test_a_file_with_unchanged_times_is_not_read(home: Path, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text("zebra")
    read: list[int] = []
    with Memory(home, clock=lambda: time.time() + 60) as memory:  # the last change of the file is a minute ago
        memory.ingest(docs)

        def look(progress: IngestProgress) -> None:
            read.append(progress.done)

        real = FileStream.pieces
        calls: list[str] = []

        def watched(self: FileStream) -> Iterator[bytes]:
            calls.append(self.file.source)
            yield from real(self)

        FileStream.pieces = watched  # type: ignore[method-assign]
        try:
            assert memory.ingest(docs, on_progress=look).unchanged
            assert calls == []
            os.utime(file, ns=(1, 1))
            assert memory.ingest(docs).unchanged  # other times: its content is unchanged
            assert calls != []
            calls.clear()
            assert memory.ingest(docs).unchanged
            assert calls == []
            status = file.stat()
            file.write_text("horse")
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            assert memory.ingest(docs).changed  # the time of the status change cannot be set back
        finally:
            FileStream.pieces = real  # type: ignore[method-assign]


def test_a_recently_written_file_is_read_again(memory: Memory, docs: Path) -> None:
    file = docs / "a.md"
    for word in ("zebra", "horse", "tiger") * 3:  # with the same size, and possibly in the same tick of the clock
        file.write_text(word)
        memory.ingest(docs)
        assert len(memory.recall(word)) == 1


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="memory is measured as Linux and macOS do")
def test_memory_usage_does_not_grow_with_the_file(docs: Path, home: Path) -> None:
    line, many = docs / "line.txt", docs / "many.md"
    with line.open("w") as file:
        for _ in range(unless_fresh(12, 25)):
            file.write("one line " * 60_000)
    with many.open("w") as file:
        for number in range(unless_fresh(1250, 2500)):
            file.write(f"# Part {number}\n\n{'word ' * 150}\n\n" + "\n" * 4000)
    program = """if True:
        import resource, sys
        from agentkit_memory import IndexUnavailable, Memory
        def unavailable(space, dimensions):
            raise IndexUnavailable("left to another process")
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
        with Memory(sys.argv[1], index=unavailable) as memory:
            memory.ingest(sys.argv[2])
            before = peak()
            report = memory.ingest(sys.argv[3:])
            print(report.chunks, len(report.errors), int(peak() - before))
    """
    (docs / "small.md").write_text("zebra " * 3000)
    arguments = [str(home), str(docs / "small.md"), str(line), str(many)]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    chunks, errors, grown = map(int, done.stdout.split())
    assert errors == 0
    assert chunks > unless_fresh(6_000, 12_000)
    assert grown < unless_fresh(10, 18)  # MB, of 12 or 25
