from agentkit.evaluations.evaluation_result import Evaluation as Evaluation
from agentkit.evaluations.evaluation_result import EvaluationFailed as EvaluationFailed
from agentkit.evaluations.evaluation_result import EvaluationProgress as EvaluationProgress
from agentkit.evaluations.evaluation_result import RowResult as RowResult
from agentkit.evaluations.run_evaluation import run as run
from agentkit.evaluations.run_evaluation import run_sync as run_sync
from agentkit.evaluations.scores import choice_match as choice_match
from agentkit.evaluations.scores import exact_match as exact_match
from agentkit.evaluations.scores import numeric_match as numeric_match
from agentkit_prompts.evaluation import *
