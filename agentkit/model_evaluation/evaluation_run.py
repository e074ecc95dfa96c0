"""`EvaluationRun`: sends the requests of an evaluation and collects the results of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from agentkit.model_evaluation.answer_file import AnswerFile, AnswerLine, as_json
from agentkit.model_evaluation.evaluation_result import Evaluation, EvaluationFailed, EvaluationProgress, RowResult
from agentkit.model_evaluation.progress_bar import OnProgress
from agentkit.model_evaluation.prompt_sender import PromptSender
from agentkit.model_evaluation.request_pace import RequestPace
from agentkit.model_evaluation.scores import Score, score_of_answers
from agentkit.models.completion.text_score import TextScore
from agentkit.models.model import NO_USAGE
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelRequestError,
    ModelUnavailable,
)
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.problems import at_row
from agentkit_prompts.tokens.counter import TokenCounter, prompt_count

T = TypeVar("T")

_MAX_PAUSE = 30.0
"""Maximum seconds between two attempts if the endpoint does not name a pause."""
_ROWS_AT_A_TIME = 64
"""Number of rows after which other tasks can run, even if the model replies without waiting."""
_MAX_UNREACHABLE = 3
"""Consecutive rows without a connection after which the evaluation stops."""
_MAX_REFUSED = 20
"""Refused rows before the first answer after which the evaluation stops."""
_NOT_FOUND = 404


class EvaluationRun:
    """The requests and results of one run of an evaluation."""

    def __init__(
        self,
        sender: PromptSender,
        rows: Sequence[Row],
        ids: Sequence[tuple[int, ...]],
        file: AnswerFile | None,
        score: Score | None,
        pace: RequestPace,
        retries: int,
        counter: TokenCounter,
        listener: OnProgress | None,
    ) -> None:
        self._sender, self._icl = sender, sender.icl
        self._rows, self._ids = rows, ids
        self._file, self._score = file, score
        self._pace, self._retries, self._counter, self._listener = pace, retries, counter, listener
        self._labels = []
        if self._icl.mode == "ppl":
            self._labels = self._icl.labels(rows)
        self._row_result = {
            "gen": self._single_result,
            "dialogue": self._dialogue_result,
            "ppl": self._label_result,
            "ll": self._label_result,
        }[self._icl.inferencer.asks]
        self._results: list[RowResult | None] = [None] * len(rows)
        self._failures: dict[int, Exception] = {}
        template = None
        if sender.is_text:
            template = getattr(sender.model, "chat_template", None)
        self._session_len: int | None = getattr(template, "session_len", None)
        self._usage = NO_USAGE
        self._answered = self._done = self._unreachable = self._refused = 0
        self._final_error: ModelError | None = None
        """Error after which no further request is sent; rows with an answer in the file still get a result."""
        self._reused: set[int] = set()

    async def all(self, concurrency: int) -> Evaluation:
        """Return the results of all rows."""
        waiting = iter(range(len(self._rows)))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(self._rows))):
                    group.create_task(self._work(waiting))
        except* Exception as errors:
            raise first_error(errors) from None
        rows = [result for result in self._results if result is not None]
        evaluation = Evaluation(rows, self._usage, reused=len(self._reused))
        if self._failures:
            failures = dict(sorted(self._failures.items()))
            raise EvaluationFailed(evaluation, failures, is_stored=self._file is not None)
        return evaluation

    async def _work(self, waiting: Iterator[int]) -> None:
        for count, number in enumerate(waiting, 1):
            try:
                self._results[number] = await self._row_result(number)
            except ModelError as error:
                self._failures[number] = error
                if self._final_error is None and self._concerns_all_rows(error):
                    # Without any answer, an argument is probably wrong. With answers, `EvaluationFailed` contains them.
                    if not self._has_answers:
                        raise
                    self._final_error = error
            except InContextError as error:
                raise at_row(number, error) from error
            except Exception as error:
                # A custom score function can raise any exception.
                error.add_note(f"row {number} of the evaluation")
                raise
            self._done += 1
            if self._listener is not None:
                self._listener(EvaluationProgress(self._done, len(self._rows), len(self._failures)))
            # Rows with an answer in the file never suspend: here other tasks can run.
            if count % _ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    @property
    def _has_answers(self) -> bool:
        return bool(self._answered or (self._file is not None and self._file.answers))

    def _concerns_all_rows(self, error: ModelError) -> bool:
        """True if every other row would probably fail with the same error."""
        if isinstance(error, ModelAuthError) or isinstance(error.__cause__, ImportError):
            return True
        if isinstance(error, ModelRequestError) and not self._answered:
            # One row can be refused for its text; if many rows are refused, all requests are probably invalid.
            self._refused += 1
            return error.status == _NOT_FOUND or self._refused >= min(_MAX_REFUSED, len(self._rows))
        if not _has_no_connection(error):
            self._unreachable = 0
            return False
        self._unreachable += 1
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
        values = [await self._log_probability(number, part, label) for part, label in enumerate(self._labels)]
        likeliest = self._labels[values.index(max(values))]
        result = self._result(number, (str(likeliest),))
        result.labels = {_label_key(label): value for label, value in zip(self._labels, values, strict=True)}
        return result

    async def _log_probability(self, number: int, part: int, label: Any) -> float:
        """Return the log probability of a label: per token, or in mode `ll` of the continuation."""
        normalizing = self._icl.inferencer.normalizing_str
        if normalizing is not None:
            return await self._normalized(number, part, label, normalizing)
        text = self._sender.write(self._fitted(number, label))
        if self._icl.inferencer.asks == "ppl":
            score = await self._text_score(number, part, text)
            return score.total() / max(1, score.size())
        end = self._rows[number].get("cont")
        if not isinstance(end, str) or not end or not text.endswith(end):
            raise InContextError(
                f"LLInferencer scores the column 'cont', which must be the end of the prompt; the column is "
                f"{end!r:.60} and the prompt ends in {text[-60:]!r}",
                name="cont",
            )
        return (await self._text_score(number, part, text)).total(len(text) - len(end))

    async def _normalized(self, number: int, part: int, label: Any, normalizing: str) -> float:
        """Return the log probability of an answer after its question, minus its log probability after `normalizing`."""
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
        label_count = len(self._labels)
        after_question = await self._text_score(number, part, context + answer)
        after_normalizing = await self._text_score(number, part + label_count, normalizing + answer)
        return _mean(after_question, len(context)) - _mean(after_normalizing, len(normalizing))

    def _fitted(self, number: int, label: Any) -> Any:
        """Return the prompt of a row with as many worked examples as fit in `max_seq_len`."""
        row, ids, limit = self._rows[number], self._ids[number], self._icl.inferencer.max_seq_len
        prompt = self._icl.prompt(row, ids, label, keep_separator=False)
        # The last example is the least similar example, so it is removed first.
        while limit is not None and ids and self._tokens(prompt) > limit:
            ids = ids[:-1]
            prompt = self._icl.prompt(row, ids, label, keep_separator=False)
        return prompt

    def _tokens(self, prompt: Any) -> int:
        content = self._sender.write(prompt)
        if isinstance(content, str):
            return prompt_count(self._counter)(content)
        return sum(self._counter.count(str(message["content"])) for message in content)

    async def _answer(self, number: int, part: int, prompt: Any) -> str:
        content = self._sender.write(prompt)
        prompt_json, line = self._stored_line(number, part, content)
        if line is not None and isinstance(line.get("answer"), str):
            self._reused.add(number)
            return str(line["answer"])
        reply = await self._send_with_retries(lambda: self._sender.request(content, part))
        self._usage += reply.usage
        answer = reply.message.text
        if self._file is not None:
            values = as_json(answer), as_json(reply.finish_reason)
            self._store(number, part, prompt_json, b'"answer":%s,"ended":%s' % values)
        return answer

    async def _text_score(self, number: int, part: int, text: str) -> TextScore:
        prompt_json, line = self._stored_line(number, part, text)
        if line is not None and isinstance(line.get("tokens"), list):
            self._reused.add(number)
            return TextScore(tuple(line["tokens"]), tuple(line["log_probabilities"]))
        score = await self._send_with_retries(lambda: self._sender.score(text))
        self._usage += score.usage
        if self._file is not None:
            values = as_json(score.tokens), as_json(score.log_probabilities)
            self._store(number, part, prompt_json, b'"tokens":%s,"log_probabilities":%s' % values)
        return score

    def _stored_line(self, number: int, part: int, content: Any) -> tuple[bytes, AnswerLine | None]:
        """Return a prompt as JSON, and its line in the file; empty and None without a file."""
        if self._session_len is not None and isinstance(content, str):
            self._check_length(content)
        if self._file is None:
            return b"", None
        prompt_json = as_json(content)
        line = self._file.answers.get((number, part))
        # Also compared as JSON, which converts tuples to lists.
        if line is not None and as_json(line.get("prompt")) != prompt_json and line.get("prompt") != content:
            raise InContextError(
                f"{self._file.path} contains an answer to another prompt (request {part}): the rows, the templates or "
                "the form of the model have changed; pass another file",
                name="prompt",
            )
        return prompt_json, line

    def _check_length(self, text: str) -> None:
        """Warn once of texts that the model may truncate."""
        tokens = prompt_count(self._counter)(text)
        if self._session_len is not None and tokens > self._session_len:
            problem = (
                f"a prompt has about {tokens:,} tokens, and session_len of the chat template is {self._session_len:,}: "
                "set session_len to the length of the server, or set max_seq_len of the inferencer to remove examples"
            )
            warn(InContextWarning(problem, name="session_len"))
            # One warning is enough: other rows probably have a similar length.
            self._session_len = None

    def _store(self, number: int, part: int, prompt_json: bytes, values: bytes) -> None:
        assert self._file is not None
        self._file.write(b'{"row":%d,"part":%d,%s,"prompt":%s}' % (number, part, values, prompt_json))

    async def _send_with_retries(self, send: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            if self._final_error is None:
                await self._pace.wait()
            # The evaluation may have stopped while this row waited.
            if self._final_error is not None:
                raise self._final_error.with_traceback(None)
            try:
                result = await send()
            except (ModelUnavailable, ModelRateLimited, ModelInterrupted) as error:
                attempt += 1
                # No retry: the address of an endpoint that never replied is probably wrong.
                if not self._answered and _has_no_connection(error):
                    raise
                pause = _pause(error, attempt)
                if attempt > self._retries or pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                self._answered += 1
                self._unreachable = 0
                return result

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


def _label_key(label: Any) -> Hashable:
    # A label from a JSON file can be a list, which cannot be a key.
    if isinstance(label, Hashable):
        return label
    return str(label)


def _mean(score: TextScore, start: int) -> float:
    """Return the log probability per token of the text from position `start`."""
    return score.total(start) / max(1, score.size(start))


def _pause(error: ModelError, attempt: int) -> float | None:
    """Return the seconds before the next attempt; None if waiting does not help."""
    if isinstance(error, ModelRateLimited) and error.is_final:
        return None
    if error.retry_after is not None:
        return error.retry_after
    return min(_MAX_PAUSE, 0.5 * 2.0 ** (attempt - 1))


def _has_no_connection(error: ModelError) -> bool:
    """True if the endpoint sent no response at all, after the retries of the model."""
    return isinstance(error, ModelUnavailable) and error.status is None


def first_error(errors: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first error of a group, which may contain groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
