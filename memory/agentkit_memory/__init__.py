"""Layer 2 of agentkit: conversations, documents and recall. Import it as `agentkit.memory`."""

from agentkit_memory.errors import (
    FactError,
    HeadMoved,
    IndexBroken,
    IndexBusy,
    IndexUnavailable,
    IngestError,
    KeyReused,
    MessageUnreadable,
    NameTaken,
    NotFound,
    RecallError,
    ScopeError,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    StoreVersion,
)
from agentkit_memory.ingest.options import IngestOptions, RecordFields
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.memory import Memory
from agentkit_memory.scope import Scope
from agentkit_memory.session import Session

__all__ = [
    "FactError",
    "HeadMoved",
    "IndexBroken",
    "IndexBusy",
    "IndexUnavailable",
    "IngestError",
    "IngestOptions",
    "IngestProgress",
    "IngestReport",
    "KeyReused",
    "Memory",
    "MessageUnreadable",
    "NameTaken",
    "NotFound",
    "RecallError",
    "RecordFields",
    "Scope",
    "ScopeError",
    "Session",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoreVersion",
]
