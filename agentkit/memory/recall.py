"""Parts of a custom recall policy and of a custom vector index. Users import them from `agentkit.memory.recall`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_memory.index.vector_index": "Hit Point VectorIndex",
        "agentkit_memory.recall.candidates": "Pool",
        "agentkit_memory.recall.question": "Question",
        "agentkit_memory.recall.recall_policy": "POLICIES RecallPolicy",
        "agentkit_memory.recall.rerankers": "Reranker",
        "agentkit_memory.recall.retrievers": "BM25Retriever DenseRetriever Retriever",
        "agentkit_memory.recall.scorers": ("AnswerScorer DateScorer QuestionScorer RecencyScorer Scorer SpeakerScorer"),
        "agentkit_memory.terms.bm25_vectors": "SparseVector",
    },
)
