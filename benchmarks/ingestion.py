"""What one large file costs to ingest: chunks a second, and the most memory that the process held.

Run as `python benchmarks/ingestion.py --size 1000` for 1,000 MB; with `--no-index`, without writing the vector index,
as when another process owns it. The rate is printed for every tenth of the file: it must not fall.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from sqlalchemy import select

from agentkit_memory import IndexUnavailable, Memory
from agentkit_memory.database.tables import items
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.ingest.report import IngestProgress
from memory import sentence

MB = 1_000_000


def write(path: Path, size: int) -> None:
    """Write a Markdown file of that many bytes: headings, paragraphs and lists in the proportions of a manual."""
    random_ = random.Random(1)
    blocks = []
    for number in range(400):
        blocks.append(
            f"## Part {number} {sentence(random_, 3)}\n\n{sentence(random_, 90)}.\n\n{sentence(random_, 60)}.\n"
        )
        blocks.append("".join(f"- {sentence(random_, 12)}\n" for _ in range(5)) + "\n")
    with path.open("w", encoding="utf-8") as file:
        written = 0
        while written < size:
            written += file.write(f"{sentence(random_, 20)}\n\n{random_.choice(blocks)}\n")


def nobody(space: str, dimensions: int) -> VectorIndex:
    """Stand for an index that another process owns."""
    raise IndexUnavailable(f"{space}: left to another process")


def chunk_ids(memory: Memory) -> set[str]:
    """Return the ids of the stored chunks."""
    with memory._store.database.read() as connection:
        return set(connection.scalars(select(items.c.id)))


def peak() -> float:
    """Return the most MB that this process had in memory at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, metavar="MB", help="of the file")
    parser.add_argument("--no-index", action="store_true", help="leave the index to another process")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder, "manual.md")
        write(file, options.size * MB)
        with Memory(Path(folder, "store"), index=nobody if options.no_index else None) as memory:
            start, before, last, next_ = time.perf_counter(), peak(), (0.0, 0), 0.1
            worked = time.process_time()

            def tell(now: IngestProgress) -> None:
                nonlocal last, next_
                if now.done_bytes / now.total_bytes >= next_:
                    next_ += 0.1
                    spent = time.perf_counter() - start
                    rate = (now.chunks - last[1]) / (spent - last[0])
                    last = spent, now.chunks
                    print(
                        f"{now.done_bytes / MB:8.0f} MB {now.chunks:9} chunks {rate:9.0f} stored/s {peak():7.0f} MB",
                        flush=True,
                    )

            report = memory.ingest(file, on_progress=tell)
            took = time.perf_counter() - start
            rate, of_cpu = report.chunks / took, report.chunks / (time.process_time() - worked)
            print(f"{options.size} MB, {report.chunks} chunks, {took:.0f} s: {rate:.0f} chunks/s end to end", end="")
            print(f", {of_cpu:.0f} a CPU second")
            print(f"memory: {before:.0f} MB before, {peak():.0f} MB at most; {report.pending} wait for the index")
            start = time.perf_counter()
            again = memory.ingest(file)
            print(f"again: {len(again.unchanged)} unchanged in {time.perf_counter() - start:.3f} s")
            file.write_bytes(b"A paragraph in front.\n\n" + file.read_bytes())
            before, worked = chunk_ids(memory), time.process_time()
            memory.ingest(file)
            print(f"a paragraph in front: {len(chunk_ids(memory) - before)} chunks of {report.chunks} written", end="")
            print(f", {time.process_time() - worked:.1f} s of CPU")


if __name__ == "__main__":
    main()
