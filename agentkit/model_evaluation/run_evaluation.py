"""`run`: runs an evaluation, which requests an answer for every row and scores the answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from agentkit.ground.sync_driver import run_blocking
from agentkit.model_evaluation.answer_file import AnswerFile
from agentkit.model_evaluation.configured_dataset import check_arguments, configured_dataset
from agentkit.model_evaluation.evaluation_result import Evaluation
from agentkit.model_evaluation.evaluation_run import EvaluationRun
from agentkit.model_evaluation.progress_bar import OnProgress, progress_listener
from agentkit.model_evaluation.prompt_sender import MetaTemplateLike, PromptSender
from agentkit.model_evaluation.request_pace import RequestPace
from agentkit.model_evaluation.scores import Score
from agentkit.model_evaluation.shipped_scores import score_of_rows
from agentkit.models.model import Model
from agentkit.models.model_names import resolved_model
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit_prompts.errors import InContextError, brief
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.evaluation.meta.chat_messages import MediaRoot
from agentkit_prompts.ranking.embedder import Embedder
from agentkit_prompts.tokens.counter import ESTIMATE, TokenCounter

_CONCURRENCY = 16
"""Default maximum of concurrent requests."""


async def run(
    evaluation: InContext | Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    model: Model | str,
    *,
    out: str | os.PathLike[str] | None = None,
    score: Score | str | None = None,
    meta_template: MetaTemplateLike | None = None,
    settings: ModelSettings = NO_SETTINGS,
    concurrency: int | None = None,
    rate: float | None = None,
    retries: int = 2,
    counter: TokenCounter = ESTIMATE,
    embedder: Embedder | None = None,
    progress: bool | OnProgress = False,
    root: MediaRoot = None,
    allow_media: bool = False,
) -> Evaluation:
    """Request an answer for every row, and return the answers with their scores.

    Args:
        evaluation: An evaluation, or a configured dataset with `infer_cfg` and `reader_cfg`.
        rows: The test rows; for a configured dataset also the splits by name. If its `train_split` is its
            `test_split`, rows without splits are the worked examples too.
        model: The model, or its name such as "openai:gpt-5-mini". Scores of texts need a model that accepts text, such
            as `CompletionModel`.
        out: File of JSON lines that stores every answer on arrival. A run with an existing file continues the
            evaluation and sends only the missing requests.
        score: Score function of an answer and the true answer, or `exact`, `choice`, `numeric` or `none`. By default
            labels are compared exactly, and answers are scored by the `eval_cfg` of a configured dataset, if any.
            `none`: answers are not scored.
        meta_template: Meta template that writes the prompts; by default the model selects the meta template.
        settings: Settings that replace the settings of the inferencer. If neither these settings, the inferencer nor
            the model contain temperature, top_p, top_k or do_sample, a model that accepts text decodes greedily
            (temperature 0), and a chat API uses its default.
        concurrency: Maximum concurrent requests; by default the `batch_size` of the inferencer, or 16.
        rate: Maximum requests per second; without a limit by default.
        retries: Retries of a request after a temporary error, besides the retries of the model.
        counter: Token counter for the `max_seq_len` of the inferencer.
        embedder: Embedder of a `TopkRetriever` in a configuration.
        progress: True for a progress bar on stderr (extra `cli`); or a function that receives an `EvaluationProgress`
            after every row.
        root: Folder that must contain the files of images, video and audio after links are resolved. Relative paths
            start at this folder. Without a folder, paths in rows and templates are refused.
        allow_media: True to accept every path, and addresses of media that are not public. Rows and configurations of
            other authors could then send a file of this machine to the model.

    Raises:
        AgentDefinitionError: The name of the model is unknown; raised before the first request.
        InContextError: Another argument is invalid; raised before the first request.
        EvaluationFailed: Requests of rows failed. The error contains the answers of the other rows.
        ModelError: The endpoint refuses every request, or cannot be reached.
    """
    model = resolved_model(model)
    check_arguments(rows, model, counter)
    if isinstance(evaluation, InContext):
        icl, test_rows, eval_cfg = evaluation, rows, None
        if isinstance(test_rows, Mapping):
            raise InContextError("rows: expected a list of rows; splits by name need a configuration", name="rows")
    else:
        icl, test_rows = configured_dataset(evaluation, rows, embedder, score)
        eval_cfg = evaluation.get("eval_cfg")
    limit = _concurrency(concurrency, icl)
    _check_count("retries", retries, 0)
    # All arguments are checked before the first request.
    pace = RequestPace(rate)
    sender = PromptSender(icl, model, meta_template, settings, root=root, allow_media=allow_media)
    icl.reader.check((), test_rows)
    function = score_of_rows(score, eval_cfg, icl, test_rows)
    with ExitStack() as stack:
        file = None
        if out is not None:
            file = stack.enter_context(AnswerFile(out, _conditions(sender, model)))
        listener = stack.enter_context(progress_listener(progress, len(test_rows)))
        if getattr(icl.retriever, "blocking", False):
            ids = await asyncio.to_thread(icl.ids, test_rows)
        else:
            ids = icl.ids(test_rows)
        icl.warn_of_doubts(test_rows, ids)
        evaluation_run = EvaluationRun(sender, test_rows, ids, file, function, pace, retries, counter, listener)
        return await evaluation_run.all(limit)


def _concurrency(concurrency: int | None, icl: InContext) -> int:
    """Return the maximum of concurrent requests."""
    if concurrency is None:
        concurrency = icl.inferencer.batch_size or _CONCURRENCY
    _check_count("concurrency", concurrency, 1)
    return concurrency


def _check_count(name: str, value: object, minimum: int) -> None:
    if type(value) is not int or value < minimum:
        text = f"{name}: expected a whole number, {minimum} or more, got {value!r:.60}"
        raise InContextError(text, name=name, value=brief(value))


def _conditions(sender: PromptSender, model: Model) -> dict[str, Any]:
    """Return the conditions of the answers besides the prompts, for the answer file."""
    # Headers and timeouts do not change answers.
    settings = replace(sender.sent_settings, headers={}, timeout=None)
    conditions = {"model": model.name, "inferencer": sender.inferencer.name, "settings": repr(settings)}
    if (digest := sender.template_digest) is not None:
        conditions["chat_template"] = digest
    return conditions


def run_sync(
    evaluation: InContext | Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    model: Model | str,
    **options: Any,
) -> Evaluation:
    """Run an evaluation from code that is not async. See `run`."""
    try:
        return run_blocking(run(evaluation, rows, model, **options))
    except KeyboardInterrupt as error:
        out = options.get("out")
        text = "the evaluation was stopped without storing answers; with out= the same call would continue"
        if out is not None:
            text = f"the evaluation was stopped; its answers are in {os.fspath(out)}, and the same call continues"
        error.add_note(text)
        raise
