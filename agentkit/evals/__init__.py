"""Evaluation of agents: rows, scores of whole runs, statistics and reports."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.evals.conversation_result": "ConversationResult",
        "agentkit.evals.eval_row": "EvalRow",
        "agentkit.evals.evaluation_runner": "evaluate evaluate_sync",
        "agentkit.evals.evaluation_errors": "EvaluationError EvaluationWarning JudgeError RowsError SimulatedUserError",
        "agentkit.evals.evaluation_report": (
            "EvaluationReport EvaluationStopped ScoreProblem ScoreSummary ScoresFailed"
        ),
        "agentkit.evals.judge_check": "JudgeCheck LabelledRow check_judge check_judge_sync",
        "agentkit.evals.model_judge": "Judge judge",
        "agentkit.evals.outcome": "Outcome",
        "agentkit.evals.outcome_file": "read_report",
        "agentkit.evals.report_comparison": "RowChange ScoreDifference",
        "agentkit.evals.run_case": "case_line case_of first_context",
        "agentkit.evals.run_scores": (
            "Score called choice cites contains exact json_equal matches max_money max_steps max_tokens "
            "no_tool_errors not_called numeric recalled"
        ),
        "agentkit.evals.simulated_user": "ModelUser ScriptedUser SimulatedUser",
        "agentkit.evals.score_statistics": "Interval mean_interval pass_all pass_at",
    },
)
