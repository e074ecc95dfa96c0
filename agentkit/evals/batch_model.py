"""`BatchModel`: a model that collects the requests of runs, and replies with the results of their batches."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent.overrides import overridden
from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.outcome_file import OutcomeFile, StoredBatch
from agentkit.evals.simulated_user import SimulatedUser
from agentkit.model_evaluation.answer_file import as_json
from agentkit.models.http.batches import Batches, BatchResult
from agentkit.models.model import OnDelta, Reply
from agentkit.models.model_errors import ModelError
from agentkit.models.provider_batches import batch_price, batches_of
from agentkit.models.settings import ModelSettings
from agentkit.run.engine.run_options import CHANGES
from agentkit.run.parts.compaction import Summarise
from agentkit.run.parts.limits import Limits
from agentkit_prompts.composition.composition import Composition

request_key: ContextVar[str] = ContextVar("agentkit_request_key")
"""Key of the request of the current run: row and repeat."""


class RequestCollected(Exception):
    """The end of a run whose request was collected."""


class BatchModel:
    """A model for runs with one request.

    First, runs end with `RequestCollected`; then their requests are sent in batches; then the same runs receive the
    results.

    Args:
        batches: The batch API of the model.
        file: File of the evaluation, which stores the ids of batches before the wait.
    """

    def __init__(self, batches: Batches, file: OutcomeFile) -> None:
        model = batches.model
        self._batches, self._file = batches, file
        self.name, self.output_modes = model.name, model.output_modes
        self.price = batch_price(model.price)
        self._bodies: dict[str, dict[str, Any]] | None = {}
        self._results: dict[str, BatchResult] = {}
        self._digests: dict[str, str] = {}
        self._ended: list[StoredBatch] = []

    def with_settings(self, settings: ModelSettings) -> BatchModel:
        """Return the model, which has the settings of the runs already."""
        return self

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Collect a request, or return the reply of its batch.

        Raises:
            RequestCollected: The request was collected.
            ModelError: The batch did not answer the request.
        """
        key = request_key.get()
        body = self._batches.model.request_body(composition)
        if self._bodies is not None:
            self._bodies[key] = body
            raise RequestCollected
        if key not in self._results:
            raise self._batches.error("missing")
        if self._digests[key] != _digest(body):
            raise self._batches.error("changed")
        result = self._results[key]
        if isinstance(result, ModelError):
            raise result
        return self._batches.reply(composition, result)

    def sent_keys(self) -> set[str]:
        """Return the keys of the requests in batches that were not evaluated yet."""
        return {key for batch in self._waiting() for key in batch.digests}

    def _waiting(self) -> list[StoredBatch]:
        return [batch for batch in self._file.batches if not batch.is_done]

    async def exchange(self) -> None:
        """Send the collected requests in batches, and wait for all batches, also of earlier calls.

        Raises:
            ModelError: The provider refused the requests, or cannot be reached. Batches that were sent are stored.
        """
        bodies, self._bodies = self._bodies or {}, None
        for part in _parts(bodies, self._batches.max_requests, self._batches.max_bytes):
            batch_id = await self._batches.send({key: bodies[key] for key in part})
            # Stored before the wait: after a kill, the next call waits for this batch.
            digests = {key: _digest(bodies[key]) for key in part}
            self._file.store_batch(StoredBatch(len(self._file.batches), batch_id, digests))
        async with asyncio.TaskGroup() as group:
            for batch in self._waiting():
                group.create_task(self._receive(batch))

    async def _receive(self, batch: StoredBatch) -> None:
        """Add the results of a batch."""
        rest: ModelError
        results: dict[str, BatchResult] = {}
        try:
            results, rest = await self._batches.results(batch.id)
        except ModelError as error:
            # Its requests fail. The next call asks for the batch again, unless the provider does not know it.
            rest = error
            if error.status == 404:
                self._ended.append(batch)
        else:
            self._ended.append(batch)
        for key, digest in batch.digests.items():
            self._results[key] = results.get(key, rest)
            self._digests[key] = digest

    def close(self) -> None:
        """Store that the results of the batches were evaluated: the next call sends failed requests again."""
        for batch in self._ended:
            self._file.store_batch(replace(batch, is_done=True))


def batch_problems(
    rows: Sequence[EvalRow], user: SimulatedUser | None, rate: object, money: object, out: object
) -> list[str]:
    """Return the problems of arguments that batches do not support."""
    problems: list[str] = []
    if user is not None or any(row.script for row in rows):
        problems.append("a conversation of several turns needs several requests")
    for name, value in (("rate", rate), ("money", money)):
        if value is not None:
            problems.append(f"{name}= has no effect, because all requests are sent at once")
    if out is None:
        problems.append("out= is missing: a batch can take a day, and its id must be stored")
    return problems


def checked_batches(
    agent: Agent[Any, Any], options: Mapping[str, Any], problems: Sequence[str]
) -> tuple[Batches, Limits]:
    """Return the batch API of the model of an agent, and the limits of its runs.

    Args:
        agent: The agent.
        options: Options of the runs.
        problems: Problems of other arguments.

    Raises:
        EvaluationError: The runs need more than one request, or the model has no batch API. The error lists all
            problems.
    """
    changes: Any = {name: value for name, value in options.items() if name in CHANGES}
    definition = overridden(agent).with_changes(**changes).definition
    chain = definition.chain
    batches = batches_of(chain.model)
    texts = list(problems)
    if batches is None:
        kind = type(chain.model).__name__
        texts.append(f"{kind} has no batch API: use OpenAIModel, OpenAIResponsesModel or AnthropicModel")
    if definition.tools.is_per_run or len(definition.tools.tools) > (chain.answer.tool is not None):
        texts.append("the agent has tools, so that a run can need several requests")
    if isinstance(definition.compaction, Summarise):
        texts.append("Summarise sends additional requests: use Trim()")
    if texts or batches is None:
        raise EvaluationError(f"batch: {'; '.join(texts)}", name="batch", problems=[("batch", text) for text in texts])
    # A repair would be a second request.
    return batches, replace(definition.limits, repairs=0)


def _parts(bodies: Mapping[str, dict[str, Any]], max_requests: int, max_bytes: int) -> Iterator[list[str]]:
    """Yield the keys of requests, in the order of the rows, in parts that fit the limits of a batch."""
    part: list[str] = []
    size = 0
    for key in sorted(bodies, key=_place):
        body = bodies[key]
        # The provider also counts the key and the address of a request.
        length = len(as_json(body)) + len(key) + 100
        if part and (len(part) == max_requests or size + length > max_bytes):
            yield part
            part, size = [], 0
        part.append(key)
        size += length
    if part:
        yield part


def _place(key: str) -> list[int]:
    """Return the numbers of the row and the run in the key of a request."""
    return [int(number) for number in key.split("-")]


def _digest(body: dict[str, Any]) -> str:
    return hashlib.blake2b(as_json(body), digest_size=8).hexdigest()
