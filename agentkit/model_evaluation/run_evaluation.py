"""`run`: asks a model about every row of an evaluation, and scores its answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from agentkit.ground.sync_driver import run_blocking
from agentkit.model_evaluation.answer_file import AnswerFile, AnswerLine, as_json
from agentkit.model_evaluation.configured_dataset import check_arguments, configured_dataset
from agentkit.model_evaluation.evaluation_result import Evaluation, EvaluationFailed, EvaluationProgress, RowResult
from agentkit.model_evaluation.progress_bar import OnProgress, progress_listener
from agentkit.model_evaluation.prompt_sender import MetaTemplateLike, PromptSender
from agentkit.model_evaluation.request_pace import RequestPace
from agentkit.model_evaluation.scores import Score, score_of_answers
from agentkit.model_evaluation.shipped_scores import score_of_rows
from agentkit.models.completion.text_score import TextScore
from agentkit.models.model import NO_USAGE, Model
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelRequestError,
    ModelUnavailable,
)
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, brief
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.evaluation.problems import at_row
from agentkit_prompts.ranking.embedder import Embedder
from agentkit_prompts.tokens.counter import ESTIMATE, TokenCounter, prompt_count

__all__ = ["run", "run_sync"]

T = TypeVar("T")

_CONCURRENCY = 16
_MAX_PAUSE = 30.0
"""Seconds between two attempts at a request, where the endpoint does not name them."""
_ROWS_AT_A_TIME = 64
"""Rows after which others have their turn, for models that answer without waiting."""
_MAX_UNREACHABLE = 3
"""Rows in succession that found no connection, after which no other is asked."""
_MAX_REFUSED = 20
"""Rows that are refused before any is answered, after which no other is asked."""
_NOT_FOUND = 404


async def run(
    evaluation: InContext | Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    model: Model,
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
) -> Evaluation:
    """Ask a model about every row, and return its answers with their scores.

    Args:
        evaluation: What is asked, and how; or a dataset of a configuration, with `infer_cfg` and `reader_cfg`.
        rows: The rows that are asked; for a configuration also the splits, by name. Where its `train_split` is the one
            that is asked, plain rows are the worked examples too.
        model: The model. One that takes plain text (`CompletionModel`) is needed where texts are scored.
        out: A file of JSON lines that holds every answer as soon as it is there. Run again with the same file, an
            evaluation goes on: what was answered is not asked again.
        score: Compares an answer with the true one: a function, or `exact`, `choice` or `numeric`. Without one, labels
            are compared exactly, answers as the `eval_cfg` of a configuration says, and otherwise not at all; with
            `none` nothing is scored.
        meta_template: How prompts are written for the model, where that is not left to it.
        settings: How the model is to answer, in the place of what the inferencer says. Where neither these, the
            inferencer nor the model have a temperature, top_p, top_k or do_sample, a model that takes plain text
            answers greedily (temperature 0), and one behind a chat API as its endpoint does.
        concurrency: Requests at once; the `batch_size` of the inferencer, or 16, when not given.
        rate: Requests that begin in a second at most; as many as `concurrency` allows, when not given.
        retries: Further attempts at a request that failed for the moment, beside those of the model itself.
        counter: Counts the tokens of a prompt where the inferencer has a `max_seq_len`.
        embedder: Makes the vectors of a `TopkRetriever` in a configuration.
        progress: True draws a bar on stderr (extra `cli`); or a function, called with an `EvaluationProgress` after
            every row.

    Raises:
        InContextError: The evaluation cannot be asked like that: names everything, before anything is sent.
        EvaluationFailed: Some rows could not be asked; it has what was answered.
        ModelError: The endpoint refuses every request, or cannot be reached.
    """
    check_arguments(rows, model, counter)
    if isinstance(evaluation, InContext):
        icl, asked = evaluation, rows
        if isinstance(asked, Mapping):
            raise InContextError(
                "rows: expected the rows that are asked; splits by name go with a configuration", name="rows"
            )
    else:
        icl, asked = configured_dataset(evaluation, rows, embedder, score)
    limit = icl.inferencer.batch_size or _CONCURRENCY
    if concurrency is not None:
        limit = concurrency
    for name, value, least in (("concurrency", limit, 1), ("retries", retries, 0)):
        if type(value) is not int or value < least:
            text = f"{name}: expected a whole number, {least} or more, got {value!r:.60}"
            raise InContextError(text, name=name, value=brief(value))
    # All arguments are checked before the first request.
    pace = RequestPace(rate)
    asker = PromptSender(icl, model, meta_template, settings)
    icl.reader.check((), asked)
    eval_cfg = None
    if isinstance(evaluation, Mapping):
        eval_cfg = evaluation.get("eval_cfg")
    scores = score_of_rows(score, eval_cfg, icl, asked)
    # Headers and timeouts change no answer.
    sent = replace(asker.sent_settings, headers={}, timeout=None)
    about = {"model": model.name, "inferencer": icl.inferencer.name, "settings": repr(sent)}
    if (digest := asker.template_digest) is not None:
        about["chat_template"] = digest
    with ExitStack() as stack:
        file = None
        if out is not None:
            file = stack.enter_context(AnswerFile(out, about))
        listener = stack.enter_context(progress_listener(progress, len(asked)))
        ids = await asyncio.to_thread(icl.ids, asked) if getattr(icl.retriever, "blocking", False) else icl.ids(asked)
        icl.warn_of_doubts(asked, ids)
        running = _EvaluationRun(asker, asked, ids, file, scores, pace, retries, counter, listener)
        return await running.all(limit)


def run_sync(
    evaluation: InContext | Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    model: Model,
    **options: Any,
) -> Evaluation:
    """Ask a model about every row from code that is not async. See `run`."""
    try:
        return run_blocking(run(evaluation, rows, model, **options))
    except KeyboardInterrupt as error:
        out = options.get("out")
        text = "the evaluation was stopped and nothing is kept; with out= the same call would continue"
        if out is not None:
            text = f"the evaluation was stopped; its answers are in {os.fspath(out)}, and the same call continues"
        error.add_note(text)
        raise


class _EvaluationRun:
    """One run of an evaluation."""

    def __init__(
        self,
        asker: PromptSender,
        rows: Sequence[Row],
        ids: Sequence[tuple[int, ...]],
        file: AnswerFile | None,
        score: Score | None,
        pace: RequestPace,
        retries: int,
        counter: TokenCounter,
        listener: OnProgress | None,
    ) -> None:
        self._asker, self._icl = asker, asker.icl
        self._rows, self._ids = rows, ids
        self._file, self._score = file, score
        self._pace, self._retries, self._counter, self._listener = pace, retries, counter, listener
        self._labels = []
        if self._icl.mode == "ppl":
            self._labels = self._icl.labels(rows)
        self._row = {
            "gen": self._single_result,
            "dialogue": self._dialogue_result,
            "ppl": self._label_result,
            "ll": self._label_result,
        }[self._icl.inferencer.asks]
        self._results: list[RowResult | None] = [None] * len(rows)
        self._failures: dict[int, Exception] = {}
        template = None
        if asker.is_text:
            template = getattr(asker.model, "chat_template", None)
        self._session_len: int | None = getattr(template, "session_len", None)
        self._usage = NO_USAGE
        self._answered = self._done = self._unreachable = self._refused = 0
        self._final_error: ModelError | None = None
        """Why no other row is asked; those that a file holds are still found in it."""
        self._reused: set[int] = set()

    async def all(self, concurrency: int) -> Evaluation:
        """Ask every row, so many at once."""
        waiting = iter(range(len(self._rows)))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(self._rows))):
                    group.create_task(self._work(waiting))
        except* Exception as errors:
            raise _first(errors) from None
        rows = [one for one in self._results if one is not None]
        found = Evaluation(rows, self._usage, reused=len(self._reused))
        if self._failures:
            raise EvaluationFailed(found, dict(sorted(self._failures.items())), kept=self._file is not None)
        return found

    async def _work(self, waiting: Iterator[int]) -> None:
        for count, number in enumerate(waiting, 1):
            try:
                self._results[number] = await self._row(number)
            except ModelError as error:
                self._failures[number] = error
                if self._final_error is None and self._is_for_all(error):
                    # Without any answer the arguments are wrong; else the answers so far go with the error.
                    if not self._has_answers:
                        raise
                    self._final_error = error
            except InContextError as error:
                raise at_row(number, error) from error
            except Exception as error:
                # A score function of the caller may raise anything.
                error.add_note(f"row {number} of the evaluation")
                raise
            self._done += 1
            if self._listener is not None:
                self._listener(EvaluationProgress(self._done, len(self._rows), len(self._failures)))
            # Rows that the file has answered never suspend, so other tasks get a turn here.
            if count % _ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    @property
    def _has_answers(self) -> bool:
        return bool(self._answered or (self._file is not None and self._file.known))

    def _is_for_all(self, error: ModelError) -> bool:
        """Return whether an error would be the same for every other row, so that none is to be asked."""
        if isinstance(error, ModelAuthError):
            return True
        if isinstance(error, ModelRequestError) and not self._answered:
            # One row may be refused for its text; the first few together are refused for the request.
            self._refused += 1
            return error.status == _NOT_FOUND or self._refused >= min(_MAX_REFUSED, len(self._rows))
        self._unreachable = self._unreachable + 1 if _has_no_connection(error) else 0
        return self._unreachable >= min(_MAX_UNREACHABLE, len(self._rows))

    async def _single_result(self, number: int) -> RowResult:
        prompt = self._fitted(number, None)
        return self._result(number, (await self._answer(number, 0, prompt),))

    async def _dialogue_result(self, number: int) -> RowResult:
        answers: list[str] = []
        requests = self._icl.requests(self._rows[number], self._ids[number])
        try:
            prompt = next(requests)
            while True:
                answers.append(await self._answer(number, len(answers), prompt))
                prompt = requests.send(answers[-1])
        except StopIteration:
            return self._result(number, tuple(answers))

    async def _label_result(self, number: int) -> RowResult:
        found = [await self._likelihood(number, part, label) for part, label in enumerate(self._labels)]
        labels: dict[Any, float] = {}
        for label, value in zip(self._labels, found, strict=True):
            # A label may be a list of a JSON file.
            labels[label if isinstance(label, Hashable) else str(label)] = value
        likeliest = self._labels[found.index(max(found))]
        result = self._result(number, (str(likeliest),))
        result.labels = labels
        return result

    async def _likelihood(self, number: int, part: int, label: Any) -> float:
        """Return the log probability of a label: per token, or in mode `ll` that of the continuation."""
        normalizing = self._icl.inferencer.normalizing_str
        if normalizing is not None:
            return await self._normalized(number, part, label, normalizing)
        text = self._asker.write(self._fitted(number, label))
        if self._icl.inferencer.asks == "ppl":
            score = await self._text_score(number, part, text)
            return score.total() / max(1, score.size())
        end = self._rows[number].get("cont")
        if not isinstance(end, str) or not end or not text.endswith(end):
            raise InContextError(
                f"LLInferencer scores the column 'cont', which must be the end of the prompt; it is {end!r:.60} and "
                f"the prompt ends in {text[-60:]!r}",
                name="cont",
            )
        return (await self._text_score(number, part, text)).total(len(text) - len(end))

    async def _normalized(self, number: int, part: int, label: Any, instead: str) -> float:
        """Return how likely an answer is behind its question, less how likely it is behind another text."""
        template = self._icl.prompt_template
        ice = self._icl.examples(self._ids[number], keep_separator=False)
        prompt = template.label_item(self._rows[number], label, ice=ice, keep_separator=True)
        mark = getattr(template, "sep_token", None)
        if not isinstance(prompt, str) or not mark or mark not in prompt:
            raise InContextError(
                "normalizing_str needs a prompt that is text, with the sep_token of its template before the answer",
                name="normalizing_str",
            )
        context, _, rest = prompt.partition(mark)
        answer = rest.replace(mark, "")
        size = len(self._labels)
        behind = await self._text_score(number, part, context + answer)
        alone = await self._text_score(number, part + size, instead + answer)
        one, other = (
            found.total(len(start)) / max(1, found.size(len(start)))
            for found, start in ((behind, context), (alone, instead))
        )
        return one - other

    def _fitted(self, number: int, label: Any) -> Any:
        """Return the prompt of a row, with as many of its worked examples as fit."""
        row, ids, most = self._rows[number], self._ids[number], self._icl.inferencer.max_seq_len
        prompt = self._icl.prompt(row, ids, label, keep_separator=False)
        # The last example is the least similar one, so it is left out first.
        while most is not None and ids and self._tokens(prompt) > most:
            ids = ids[:-1]
            prompt = self._icl.prompt(row, ids, label, keep_separator=False)
        return prompt

    def _tokens(self, prompt: Any) -> int:
        sent = self._asker.write(prompt)
        if isinstance(sent, str):
            return prompt_count(self._counter)(sent)
        return sum(self._counter.count(str(message["content"])) for message in sent)

    async def _answer(self, number: int, part: int, prompt: Any) -> str:
        sent = self._asker.write(prompt)
        shown, known = self._stored_line(number, part, sent)
        if known is not None and isinstance(known.get("answer"), str):
            self._reused.add(number)
            return str(known["answer"])
        reply = await self._send_with_retries(lambda: self._asker.ask(sent, part))
        self._usage += reply.usage
        answer = reply.message.text
        if self._file is not None:
            self._store(
                number, part, shown, b'"answer":%s,"ended":%s' % (as_json(answer), as_json(reply.finish_reason))
            )
        return answer

    async def _text_score(self, number: int, part: int, text: str) -> TextScore:
        shown, known = self._stored_line(number, part, text)
        if known is not None and isinstance(known.get("tokens"), list):
            self._reused.add(number)
            return TextScore(tuple(known["tokens"]), tuple(known["log_probabilities"]))
        score = await self._send_with_retries(lambda: self._asker.score(text))
        self._usage += score.usage
        if self._file is not None:
            found = as_json(score.tokens), as_json(score.log_probabilities)
            self._store(number, part, shown, b'"tokens":%s,"log_probabilities":%s' % found)
        return score

    def _stored_line(self, number: int, part: int, sent: Any) -> tuple[bytes, AnswerLine | None]:
        """Return a prompt as the file has it, and what is answered to it already."""
        if self._session_len is not None and isinstance(sent, str):
            self._check_length(sent)
        if self._file is None:
            return b"", None
        shown = as_json(sent)
        known = self._file.known.get((number, part))
        # JSON turns tuples into lists, so both forms are compared.
        if known is not None and as_json(known.get("prompt")) != shown and known.get("prompt") != sent:
            raise InContextError(
                f"{self._file.path} has an answer to another prompt (request {part}): the rows, the templates or the "
                "model's form have changed since; name another file",
                name="prompt",
            )
        return shown, known

    def _check_length(self, text: str) -> None:
        """Warn once of texts that the model may cut."""
        tokens = prompt_count(self._counter)(text)
        if self._session_len is not None and tokens > self._session_len:
            problem = (
                f"a prompt has about {tokens:,} tokens, and session_len of the chat template is {self._session_len:,}: "
                "give the template the length of the server, or the inferencer a max_seq_len, which leaves examples out"
            )
            warn(InContextWarning(problem, name="session_len"))
            # One warning is enough: the other rows are as long.
            self._session_len = None

    def _store(self, number: int, part: int, shown: bytes, answer: bytes) -> None:
        assert self._file is not None
        self._file.write(b'{"row":%d,"part":%d,%s,"prompt":%s}' % (number, part, answer, shown))

    async def _send_with_retries(self, send: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            if self._final_error is None:
                await self._pace.turn()
            # The evaluation may have ended while this row waited.
            if self._final_error is not None:
                raise self._final_error.with_traceback(None)
            try:
                found = await send()
            except (ModelUnavailable, ModelRateLimited, ModelInterrupted) as error:
                attempt += 1
                # An endpoint that never answered is probably a wrong address.
                if attempt > self._retries or (not self._answered and _has_no_connection(error)):
                    raise
                pause = min(_MAX_PAUSE, 0.5 * 2.0 ** (attempt - 1))
                if isinstance(error, ModelRateLimited):
                    if error.is_final:
                        raise
                    if error.retry_after is not None:
                        pause = error.retry_after
                await asyncio.sleep(pause)
            else:
                self._answered += 1
                self._unreachable = 0
                return found

    def _result(self, number: int, answers: tuple[str, ...]) -> RowResult:
        column = self._icl.reader.output_column
        gold = None
        if column is not None:
            gold = self._rows[number].get(column)
        result = RowResult(number, answers, gold)
        if self._score is not None and gold is not None and answers:
            is_dialogue = self._icl.inferencer.mode is not None
            result.score = score_of_answers(self._score, answers, gold, is_dialogue=is_dialogue)
        return result


def _has_no_connection(error: ModelError) -> bool:
    """Return whether an endpoint did not answer at all; the model has tried several times."""
    return isinstance(error, ModelUnavailable) and error.status is None


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first error of a group that holds one."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
