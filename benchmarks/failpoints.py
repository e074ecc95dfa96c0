"""The failpoints of the memory layer by name, for `crashes.py` and tests, which kill processes there."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FAILPOINTS"]

FAILPOINTS: Mapping[str, str] = {
    "backup.copied": "all rows are in a temporary file, without the closing line",
    "backup.sealed": "the temporary file is complete, not renamed",
    "conversation.step": "some rows of a hidden conversation are deleted",
    "deferred.prepared": "logs are created, not written",
    "deferred.written": "logs are written, not committed",
    "deferred.committed": "logs are stored, waiting callers are not notified",
    "document.staged": "some chunks of the next generation of a document and their outbox rows are stored, hidden",
    "document.swept": "some hidden chunks of a document are removed",
    "document.hidden": "a removed document is hidden, its chunks are still stored",
    "edge.unnamed": "a new shard is created, its name is not recorded",
    "edge.flushed": "points are durable, a full segment is not closed",
    "edge.between": "points of one version are written, points of the next version are not",
    "erasure.begun": "an erasure is recorded",
    "erasure.step": "some rows of the subject are removed, with the tombstones of their points",
    "erasure.sealed": "all data of the subject is removed, and its names are digests",
    "export.rows": "some rows are in a temporary file",
    "export.ended": "the temporary file is complete, not renamed",
    "facts.leased": "a worker has leased turns",
    "facts.asked": "the model has returned drafts of facts, no fact is written",
    "facts.written": "facts are written and the turns are marked as read, not committed",
    "facts.committed": "the facts of some turns are stored",
    "index.cleared": "an index of another database is empty, not recorded in SQL",
    "index.attached": "SQL refers to this index",
    "items.enqueued": "chunks and their outbox rows are written, not committed",
    "items.removed": "old chunks of a document are removed, not committed",
    "items.committed": "a document is stored; a long document still has chunks of the previous generation",
    "messages.written": "messages are written, not committed",
    "messages.committed": "messages are stored",
    "rebuild.cleared": "the index is empty, SQL records it as full",
    "rebuild.queued": "all items are in the outbox again",
    "reembed.begun": "a new space is recorded, its outbox rows are not",
    "reembed.built": "every item is in the new space",
    "reembed.checked": "the new space has passed the check",
    "reembed.flipped": "the new space is read, the old space still exists",
    "reembed.queued": "every item is in the outbox of the new space",
    "repair.queued": "missing and orphaned points are in the outbox, the index is unchanged",
    "restore.written": "the rows of a backup are written, not committed",
    "restore.committed": "the rows of a backup are stored, the index is not built",
    "sessions.line": "the messages of some lines of a file are stored",
    "spaces.dropped": "the index of an unused space is empty, not recorded in SQL",
    "worker.leased": "a worker has leased rows",
    "worker.embedded": "the vectors are computed",
    "worker.upserted": "points are written, not flushed",
    "worker.deleted": "points are removed, not flushed",
    "worker.flushed": "the index is durable, not recorded in SQL",
    "worker.unacknowledged": "rows are acknowledged, not committed",
    "worker.acknowledged": "rows are acknowledged",
}
"""Name of each failpoint, and the state of the data when it is reached."""
