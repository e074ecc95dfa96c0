"""Public names for the evaluation of prompts."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.model_evaluation.evaluation_result": "Evaluation EvaluationFailed EvaluationProgress RowResult",
        "agentkit.model_evaluation.row_files": "load_rows",
        "agentkit.model_evaluation.run_evaluation": "run run_sync",
        "agentkit.model_evaluation.scores": "choice_match exact_match numeric_match",
        "agentkit_memory.recall.retrievers": "BM25Retriever",
    },
    all_of=("agentkit_prompts.evaluation",),
)
