from agentkit.evaluations.evaluation_result import Evaluation as Evaluation
from agentkit.evaluations.evaluation_result import EvaluationFailed as EvaluationFailed
from agentkit.evaluations.evaluation_result import EvaluationProgress as EvaluationProgress
from agentkit.evaluations.evaluation_result import RowResult as RowResult
from agentkit.evaluations.row_files import load_rows as load_rows
from agentkit.evaluations.run_evaluation import run as run
from agentkit.evaluations.run_evaluation import run_sync as run_sync
from agentkit.evaluations.scores import choice_match as choice_match
from agentkit.evaluations.scores import exact_match as exact_match
from agentkit.evaluations.scores import numeric_match as numeric_match
from agentkit_memory import BM25Retriever as BM25Retriever
from agentkit_prompts.evaluation import *
