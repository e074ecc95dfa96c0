"""Conversations, documents and recall: layer 2 of agentkit. Import from `agentkit.memory`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_memory.conversations.stored_session": "StoredSession",
        "agentkit_memory.embedders.local_embedders": "FastembedEmbedder SentenceTransformersEmbedder",
        "agentkit_memory.embedders.openai_embedder": "OpenAIEmbedder",
        "agentkit_memory.errors": (
            "AlreadyUsed EmbedderError HeadMoved IndexBroken IndexUnavailable IngestError InvalidArgument "
            "NotFound StoreClosed StoreCorrupt StoreError StoreUnavailable"
        ),
        "agentkit_memory.facts.drafts": "FactDraft Turn",
        "agentkit_memory.index.opening": "qdrant_indexes",
        "agentkit_memory.ingest.ingest_options": "IngestOptions",
        "agentkit_memory.memory": "Memory",
        "agentkit_memory.recall.recall_filter": "RecallFilter",
        "agentkit_memory.recall.recall_result": "Recall",
        "agentkit_memory.reembed.gate": "Gate",
        "agentkit_memory.scope": "Scope",
        "agentkit_memory.store.records": "StoredFact",
        "agentkit_prompts.ranking.embedder": "Embedder",
    },
)
