"""`/runs/{run}/messages`: the endpoint that sends messages to a run while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from agentkit.ground.threads import in_thread
from agentkit.run.parts.run_inbox import Moment, SentMessage, checked_message
from agentkit.runs.run_errors import DatabaseUnavailable, DurableError, RunNotFound
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.client_names import checked_name
from agentkit.server.endpoints.exchange import JSONAnswer, read_json, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter
from agentkit.server.request_runs.request_runner import RequestRunner
from agentkit.server.server_errors import Conflict, Unprocessable
from agentkit.server.server_options import ServerOptions

_SENT = {
    "type": "object",
    "properties": {
        "run": {"type": "string"},
        "when": {"type": "string", "enum": ["next_step", "idle"]},
        "by": {"type": "string", "description": "The user or the name of the token that sent the message."},
        "sent_at": {"type": "number", "description": "Seconds since 1970."},
    },
}


class SendMessage(BaseModel):
    """A message to a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: str = Field(min_length=1, description="Text of the user.")
    when: Moment = Field(
        default="next_step",
        description="`next_step`: before the next model call; `idle`: when the run would end with its answer.",
    )
    user: str | None = Field(default=None, description="The user who sends the message, within the tenant.")


class MessageEndpoints:
    """The endpoint that sends messages to runs.

    Args:
        store: Store of the runs.
        runner: Executes the runs of requests, which are stored when they end.
        record: Returns the record of a run of a caller, or raises `RunNotFound`.
        options: Limits of the server.
    """

    def __init__(
        self,
        store: RunStore,
        runner: RequestRunner,
        record: Callable[[str, Caller], Awaitable[RunRecord]],
        options: ServerOptions,
    ) -> None:
        self._store = store
        self._runner = runner
        self._record = record
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        key = Parameter("Idempotency-Key", "A message with a key that the run knows is not sent again.")
        path, summary = "/runs/{run}/messages", "Send a message to an unfinished run"
        return [Endpoint("POST", path, self.send, summary, "run", SendMessage, _SENT, status=202, headers=(key,))]

    async def send(self, request: Request, caller: Caller) -> Response:
        """Send a message to a run."""
        run_id = request.path_params["run"]
        body = validated(SendMessage, await read_json(request, self._options))
        key = request.headers.get("idempotency-key")
        if key is not None:
            checked_name(key, "Idempotency-Key")
        sent = checked_message(body.input, body.when, caller.as_user(body.user) or caller.name)
        live = self._runner.live(run_id, caller)
        if live is not None:
            if key is not None:
                raise Unprocessable(
                    "Idempotency-Key: this run is stored when it ends: omit the key", param="Idempotency-Key"
                )
            live.send(body.input, when=sent.when, by=sent.by)
        else:
            sent = await self._send(await self._record(run_id, caller), sent, key)
        return JSONAnswer({"run": run_id, "when": sent.when, "by": sent.by, "sent_at": sent.sent_at}, 202)

    async def _send(self, record: RunRecord, sent: SentMessage, key: str | None) -> SentMessage:
        """Send a message to a stored run.

        Raises:
            Conflict: The key was used for another message, or too many messages are unread.
        """
        try:
            return await in_thread(partial(self._store.messages.send, record.run_id, sent, key))
        except (RunNotFound, DatabaseUnavailable):
            raise
        except DurableError as error:
            code = "too_many_messages"
            if error.name == "key":
                code = "idempotency_key_reused"
            raise Conflict(str(error), code=code) from error
