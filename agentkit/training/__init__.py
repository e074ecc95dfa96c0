"""Rows for fine-tuning, from runs, evaluations and conversations."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.training.conversation_examples": "conversation_answers",
        "agentkit.training.row_export": "ExportReport export_rows",
        "agentkit.training.row_formats": "RowFormat",
        "agentkit.training.run_examples": "SessionFinder evaluated_runs stored_runs",
        "agentkit.training.training_errors": "ExportError",
        "agentkit.training.training_example": "LeftOut Origin TrainingExample TrainingSource",
    },
)
