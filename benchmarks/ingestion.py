"""Ingestion of one large file: chunks per second, and maximum memory of the process.

`python benchmarks/ingestion.py --size 1000` ingests 1,000 MB. With `--no-index`, the vector index is not written, as if
another process owned it. The script prints the rate for every tenth of the file; the rate must not decrease.
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
    """Write a Markdown file of `size` bytes with headings, paragraphs and lists in the proportions of a manual."""
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


def no_index(space: str, dimensions: int) -> VectorIndex:
    """Raise the error of an index that another process owns."""
    raise IndexUnavailable(f"{space}: another process owns the index")


def chunk_ids(memory: Memory) -> set[str]:
    """Return the ids of the stored chunks."""
    with memory._store.database.read() as connection:
        return set(connection.scalars(select(items.c.id)))


def peak() -> float:
    """Return the maximum memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, metavar="MB", help="size of the file")
    parser.add_argument("--no-index", action="store_true", help="do not write the vector index")
    parser.add_argument(
        "--folder", type=Path, help="parent of the working folder; by default, the folder of temporary files"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder, "manual.md")
        write(file, options.size * MB)
        with Memory(Path(folder, "store"), index=no_index if options.no_index else None) as memory:
            start, before, last, next_share = time.perf_counter(), peak(), (0.0, 0), 0.1
            cpu_start = time.process_time()

            def print_progress(progress: IngestProgress) -> None:
                nonlocal last, next_share
                if progress.done_bytes / progress.total_bytes >= next_share:
                    next_share += 0.1
                    elapsed = time.perf_counter() - start
                    rate = (progress.chunks - last[1]) / (elapsed - last[0])
                    last = elapsed, progress.chunks
                    size = f"{progress.done_bytes / MB:8.0f} MB {progress.chunks:9} chunks"
                    print(f"{size} {rate:9.0f} stored/s {peak():7.0f} MB", flush=True)

            report = memory.ingest(file, on_progress=print_progress)
            seconds = time.perf_counter() - start
            rate, cpu_rate = report.chunks / seconds, report.chunks / (time.process_time() - cpu_start)
            print(f"{options.size} MB, {report.chunks} chunks, {seconds:.0f} s: {rate:.0f} chunks/s end to end", end="")
            print(f", {cpu_rate:.0f} per CPU second")
            print(f"memory: {before:.0f} MB before, {peak():.0f} MB maximum; {report.pending} pending items")
            start = time.perf_counter()
            second_report = memory.ingest(file)
            print(f"second ingestion: {len(second_report.unchanged)} unchanged in {time.perf_counter() - start:.3f} s")
            file.write_bytes(b"A paragraph in front.\n\n" + file.read_bytes())
            old_ids, cpu_start = chunk_ids(memory), time.process_time()
            memory.ingest(file)
            print(f"new first paragraph: {len(chunk_ids(memory) - old_ids)} chunks of {report.chunks} written", end="")
            print(f", {time.process_time() - cpu_start:.1f} s of CPU")


if __name__ == "__main__":
    main()
