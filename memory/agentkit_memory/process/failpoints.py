"""Places between two writes where a test can kill the process, as a power cut or `kill -9` would.

Off, and free, unless the environment variable AGENTKIT_FAILPOINT names one: `worker.flushed:3` kills at its third pass.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from threading import Lock

from agentkit_prompts.errors import nearest

__all__ = ["FAILPOINTS", "VARIABLE", "Failpoint", "armed", "failpoint"]

VARIABLE = "AGENTKIT_FAILPOINT"

FAILPOINTS: Mapping[str, str] = {
    "document.staged": "some chunks of a document's next generation are stored, not shown",
    "document.queued": "some of them are in the outbox",
    "document.published": "the next generation is shown, the one before is still there",
    "document.swept": "some chunks of the generation before are removed",
    "document.hidden": "a removed document is not shown, its chunks are still there",
    "edge.unnamed": "a new shard is made, its name is not",
    "edge.flushed": "points are durable, a full segment is not closed",
    "edge.between": "points of one version are written, those of the next are not",
    "erasure.begun": "an erasure is written down",
    "erasure.step": "some rows of the subject are removed, with the tombstones of their points",
    "erasure.sealed": "nothing of the subject is left, and its names are digests",
    "facts.leased": "a worker has leased turns",
    "facts.asked": "the model has returned drafts of facts, nothing is written",
    "facts.written": "facts are written and the turns are read, not committed",
    "facts.committed": "the facts of some turns are stored",
    "index.cleared": "an index of another database is empty, SQL does not know",
    "index.attached": "SQL refers to this index",
    "items.removed": "old chunks of a document are removed, not committed",
    "items.enqueued": "chunks and their outbox rows are written, not committed",
    "items.committed": "a document is stored",
    "messages.written": "messages are written, not committed",
    "messages.committed": "messages are stored",
    "reembed.begun": "a new space is written down, its outbox rows are not",
    "reembed.built": "every item is in the new space",
    "reembed.checked": "the new space is good enough",
    "reembed.flipped": "the new space is read, the old one is still there",
    "reembed.queued": "every item is in the outbox of the new space",
    "repair.queued": "what is missing or left over is in the outbox, the index is as it was",
    "spaces.dropped": "the index of a space that is no longer read is empty, SQL does not know",
    "worker.leased": "a worker has leased rows",
    "worker.embedded": "the vectors are computed",
    "worker.upserted": "points are written, not flushed",
    "worker.deleted": "points are removed, not flushed",
    "worker.flushed": "the index is durable, SQL does not know",
    "worker.unacknowledged": "rows are acknowledged, not committed",
    "worker.acknowledged": "rows are acknowledged",
}
"""Every failpoint, and what has happened when it is passed."""


class Failpoint:
    """One armed failpoint.

    Args:
        spec: Its name and, after a colon, at which pass to kill; the first by default.

    Raises:
        ValueError: The name is unknown, or the number is invalid.
    """

    def __init__(self, spec: str) -> None:
        self.name, _, count = spec.partition(":")
        if self.name not in FAILPOINTS:
            raise ValueError(f"{VARIABLE}={spec}: unknown failpoint {self.name!r}{nearest(self.name, FAILPOINTS)}")
        if count and not (count.isascii() and count.isdigit() and int(count)):
            raise ValueError(f"{VARIABLE}={spec}: expected NAME or NAME:COUNT, the count being 1 or more")
        self._left = int(count or 1)
        self._lock = Lock()

    def passed(self, name: str) -> None:
        """Kill this process if it is the time and place."""
        if name == self.name:
            with self._lock:
                self._left -= 1
                if not self._left:
                    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


armed: Failpoint | None = Failpoint(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def failpoint(name: str) -> None:
    """Mark that the program is at the failpoint `name`."""
    if armed is not None:
        armed.passed(name)
