from agentkit.model_evaluation.evaluation_result import Evaluation as Evaluation
from agentkit.model_evaluation.evaluation_result import EvaluationFailed as EvaluationFailed
from agentkit.model_evaluation.evaluation_result import EvaluationProgress as EvaluationProgress
from agentkit.model_evaluation.evaluation_result import RowResult as RowResult
from agentkit.model_evaluation.row_files import load_rows as load_rows
from agentkit.model_evaluation.run_evaluation import run as run
from agentkit.model_evaluation.run_evaluation import run_sync as run_sync
from agentkit.model_evaluation.scores import choice_match as choice_match
from agentkit.model_evaluation.scores import exact_match as exact_match
from agentkit.model_evaluation.scores import numeric_match as numeric_match
from agentkit_memory.recall.retrievers import BM25Retriever as BM25Retriever
from agentkit_prompts.evaluation import *
