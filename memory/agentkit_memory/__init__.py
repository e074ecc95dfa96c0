"""Layer 2 of agentkit: conversations, documents and recall. Import it as `agentkit.memory`."""

from agentkit_memory.errors import (
    HeadMoved,
    IndexBroken,
    IndexBusy,
    IngestError,
    KeyReused,
    MessageUnreadable,
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
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.memory import Memory
from agentkit_memory.scope import Scope
from agentkit_memory.session import Session

__all__ = [
    "HeadMoved",
    "IndexBroken",
    "IndexBusy",
    "IngestError",
    "IngestProgress",
    "IngestReport",
    "KeyReused",
    "Memory",
    "MessageUnreadable",
    "RecallError",
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
