"""Layer 2 of agentkit: conversations, documents and recall. Import it as `agentkit.memory`."""

from agentkit_memory.background import BackgroundWorker
from agentkit_memory.embedders.fastembed import FastembedEmbedder
from agentkit_memory.embedders.openai import OpenAIEmbedder
from agentkit_memory.embedders.sentence_transformers import SentenceTransformersEmbedder
from agentkit_memory.errors import (
    EmbedderError,
    EmbedderMismatch,
    EmbedderUnavailable,
    ExtractionError,
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
    ReembedError,
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
from agentkit_memory.extraction.drafts import Extract, FactDraft, Turn
from agentkit_memory.index.base import Hit, IndexOpener, Point, SparseVector, VectorIndex
from agentkit_memory.index.opening import edge_indexes, qdrant_indexes
from agentkit_memory.ingest.options import IngestOptions, RecordFields
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.memory import Memory
from agentkit_memory.recall.arms import Arm, Meaning, Words
from agentkit_memory.recall.candidates import Considered, Pool
from agentkit_memory.recall.evidence import Asking, Evidence, Expected, Recent, SaidThen, Sitting, Speaker
from agentkit_memory.recall.policy import POLICIES, RecallPolicy
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.result import Excerpt, Explained, Line, Recall
from agentkit_memory.records import (
    BranchInfo,
    Candidate,
    Erasure,
    Fact,
    RecallLog,
    Repair,
    StoredCall,
    StoredMessage,
    Verification,
)
from agentkit_memory.reembedding import Gate, GateCheck, Reembedding, ReembedProgress
from agentkit_memory.scope import Scope
from agentkit_memory.session import Session

__all__ = [
    "POLICIES",
    "Arm",
    "Asking",
    "BackgroundWorker",
    "BranchInfo",
    "Candidate",
    "Considered",
    "EmbedderError",
    "EmbedderMismatch",
    "EmbedderUnavailable",
    "Erasure",
    "Evidence",
    "Excerpt",
    "Expected",
    "Explained",
    "Extract",
    "ExtractionError",
    "Fact",
    "FactDraft",
    "FactError",
    "FastembedEmbedder",
    "Gate",
    "GateCheck",
    "HeadMoved",
    "Hit",
    "IndexBroken",
    "IndexBusy",
    "IndexOpener",
    "IndexUnavailable",
    "IngestError",
    "IngestOptions",
    "IngestProgress",
    "IngestReport",
    "KeyReused",
    "Line",
    "Meaning",
    "Memory",
    "MessageUnreadable",
    "NameTaken",
    "NotFound",
    "OpenAIEmbedder",
    "Point",
    "Pool",
    "Question",
    "Recall",
    "RecallError",
    "RecallLog",
    "RecallPolicy",
    "Recent",
    "RecordFields",
    "ReembedError",
    "ReembedProgress",
    "Reembedding",
    "Repair",
    "SaidThen",
    "Scope",
    "ScopeError",
    "SentenceTransformersEmbedder",
    "Session",
    "Sitting",
    "SparseVector",
    "Speaker",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoreVersion",
    "StoredCall",
    "StoredMessage",
    "Turn",
    "VectorIndex",
    "Verification",
    "Words",
    "edge_indexes",
    "qdrant_indexes",
]
