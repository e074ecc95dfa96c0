"""The failpoints of the memory layer, by name, for what kills processes at them: `crashes.py`, and tests."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FAILPOINTS"]

FAILPOINTS: Mapping[str, str] = {
    "backup.copied": "all rows are in a file of another name, without the line at its end",
    "backup.sealed": "that file is whole, and has not its name yet",
    "conversation.step": "some rows of a conversation that nobody finds any more are deleted",
    "deferred.prepared": "logs are made, not written",
    "deferred.written": "logs are written, not committed",
    "deferred.committed": "logs are stored, whoever waits for that does not know",
    "document.staged": "some chunks of a document's next generation and their outbox rows are stored, not shown",
    "document.swept": "some chunks that a document does not show are removed",
    "document.hidden": "a removed document is not shown, its chunks are still there",
    "edge.unnamed": "a new shard is made, its name is not",
    "edge.flushed": "points are durable, a full segment is not closed",
    "edge.between": "points of one version are written, those of the next are not",
    "erasure.begun": "an erasure is written down",
    "erasure.step": "some rows of the subject are removed, with the tombstones of their points",
    "erasure.sealed": "nothing of the subject is left, and its names are digests",
    "export.rows": "some rows are in a file of another name",
    "export.ended": "that file is whole, and has not its name yet",
    "facts.leased": "a worker has leased turns",
    "facts.asked": "the model has returned drafts of facts, nothing is written",
    "facts.written": "facts are written and the turns are read, not committed",
    "facts.committed": "the facts of some turns are stored",
    "index.cleared": "an index of another database is empty, SQL does not know",
    "index.attached": "SQL refers to this index",
    "items.enqueued": "chunks and their outbox rows are written, not committed",
    "items.removed": "old chunks of a document are removed, not committed",
    "items.committed": "a document is stored, a long one still has chunks of the generation before",
    "messages.written": "messages are written, not committed",
    "messages.committed": "messages are stored",
    "rebuild.cleared": "the index is empty, SQL takes it for full",
    "rebuild.queued": "everything is in the outbox again",
    "reembed.begun": "a new space is written down, its outbox rows are not",
    "reembed.built": "every item is in the new space",
    "reembed.checked": "the new space is good enough",
    "reembed.flipped": "the new space is read, the old one is still there",
    "reembed.queued": "every item is in the outbox of the new space",
    "repair.queued": "what is missing or left over is in the outbox, the index is as it was",
    "restore.written": "the rows of a backup are written, not committed",
    "restore.committed": "the rows of a backup are stored, the index is not built",
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
