"""`/v1/responses/{id}`: stored responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agentkit.errors import JournalError
from agentkit.ground.threads import in_thread
from agentkit.run.journal.accepted_replies import last_reply
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.endpoints.exchange import JSONAnswer
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter, query_int, query_text
from agentkit.server.openai_endpoints.input_items import input_items, run_id_of
from agentkit.server.openai_endpoints.openai_requests import user_of
from agentkit.server.request_runs.request_runner import RequestRunner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.server_errors import BadRequest, UnknownResource, Unprocessable
from agentkit_prompts.context.messages import Message

_MAX_ITEMS = 100
_ITEMS = 20
"""Default number of items of a page."""
_MAX_REFERENCES = 1_000
"""Maximum number of references to stored items in a request: each may read a run."""
_ORDERS = ("asc", "desc")
_USER = Parameter("user", "Only a response of this user.")
_PAGE = (
    Parameter("limit", "Maximum number of items.", {"type": "integer", "minimum": 1, "maximum": _MAX_ITEMS}),
    Parameter("order", "`desc`, the default, lists the last item first.", {"enum": [*_ORDERS]}),
    Parameter("after", "Id of the item before the first item of the page."),
)


class _Page(NamedTuple):
    """The part of a list that a request selects."""

    limit: int
    order: str
    after: str | None


class StoredResponses:
    """Stored responses and their conversations. Each response is a run.

    A caller reads the responses that it may read as runs: responses of its tenant, of permitted agents, and of its user
    if the token is bound to a user.

    Args:
        agents: The agents.
        store: Store of the runs.
        runner: Executes and stores the runs.
    """

    def __init__(self, agents: ServedAgents, store: RunStore, runner: RequestRunner) -> None:
        self._agents = agents
        self._store = store
        self._runner = runner

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        path = "/v1/responses/{response}"
        return [
            Endpoint("GET", path, self.response, "A stored response", "read", query=(_USER,)),
            Endpoint("DELETE", path, self.delete, "Delete a stored response", "run", query=(_USER,)),
            Endpoint("GET", f"{path}/input_items", self.items, "Its input", "read", query=(_USER, *_PAGE)),
        ]

    async def response(self, request: Request, caller: Caller) -> Response:
        """Return a stored response."""
        if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
            raise BadRequest(
                "stream: a stored response has no events: omit stream", param="stream", code="invalid_value"
            )
        record = await self._of_request(request, caller)
        return JSONAnswer(record.response)

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Delete a stored response with its run."""
        record = await self._of_request(request, caller)
        await in_thread(self._store.delete, record.run_id)
        return JSONAnswer({"id": request.path_params["response"], "object": "response", "deleted": True})

    async def items(self, request: Request, caller: Caller) -> Response:
        """List the items that the model received for a response, without instructions."""
        page = _page(request)
        record = await self._of_request(request, caller)
        journal = await self._journal(record)
        if journal is None:
            raise _unknown(request.path_params["response"])
        items = await in_thread(input_items, _input(record, journal), record.run_id)
        return JSONAnswer(_listed(items, page))

    async def conversation(self, response_id: str, caller: Caller, user: str | None) -> tuple[Message, ...]:
        """Return the conversation of a stored response, including the response.

        Raises:
            UnknownResource: The user has no response with this id of a permitted agent.
        """
        record = await self._record(response_id, caller)
        # Unlike a reader, a run acts for one user: a tenant's token continues only the responses of the named user.
        if record is not None and record.user == user_of(caller, user):
            journal = await self._journal(record)
            if journal is not None:
                return await in_thread(_conversation, record, journal)
        raise _unknown(response_id, param="previous_response_id", code="previous_response_not_found")

    async def with_items(self, items: Sequence[Any], caller: Caller, user: str | None) -> list[Any]:
        """Return input items, in which stored items replace the references to them.

        Raises:
            BadRequest: Too many references.
            UnknownResource: The user has no stored item with the id of a reference.
        """
        references = {index: item["id"] for index, item in enumerate(items) if _is_reference(item)}
        if len(references) > _MAX_REFERENCES:
            text = f"input: {len(references):,} references; expected at most {_MAX_REFERENCES:,}"
            raise BadRequest(text, param="input", code="invalid_value")
        stored: dict[str, dict[str, Any]] = {}
        result = list(items)
        for index, item_id in references.items():
            if item_id not in stored:
                stored |= await self._items_of_run(run_id_of(item_id), caller, user)
            if item_id not in stored:
                text = f"input[{index}]: unknown item {item_id!r:.80}; expected the id of a stored item, or the item"
                raise UnknownResource(text, param="input", code="item_not_found")
            result[index] = stored[item_id]
        return result

    async def _items_of_run(self, run_id: str | None, caller: Caller, user: str | None) -> dict[str, dict[str, Any]]:
        """Return the items of the input and the output of a response by id; empty without such a response."""
        record = None
        if run_id is not None:
            record = await self._record(f"resp_{run_id}", caller)
        if record is None or record.response is None or record.user != user_of(caller, user):
            return {}
        items = list(record.response["output"])
        journal = await self._journal(record)
        if journal is not None:
            items += await in_thread(input_items, _input(record, journal), record.run_id)
        return {item["id"]: item for item in items}

    async def _of_request(self, request: Request, caller: Caller) -> RunRecord:
        """Return the run of the response in the path.

        Raises:
            UnknownResource: The caller has no response with this id.
        """
        response_id = request.path_params["response"]
        try:
            user = query_text(request, "user")
        except Unprocessable as error:
            raise BadRequest(str(error), param=error.param, code="invalid_value") from None
        user = user_of(caller, user)
        record = await self._record(response_id, caller)
        if record is None or (user and record.user != user):
            raise _unknown(response_id)
        return record

    async def _record(self, response_id: str, caller: Caller) -> RunRecord | None:
        """Return the run of a response of the tenant and of a permitted agent, or None."""
        await self._runner.wait_stored()
        if not response_id.startswith("resp_"):
            return None
        try:
            record = await in_thread(self._store.get, response_id.removeprefix("resp_"), tenant=caller.tenant)
        except RunNotFound:
            return None
        if record.response is None or record.agent not in self._agents.names(caller):
            return None
        return record

    async def _journal(self, record: RunRecord) -> Journal | None:
        with suppress(RunNotFound, JournalError):
            return await in_thread(self._store.journal, record.run_id)
        return None


def _is_reference(item: Any) -> bool:
    """True if an input item is a reference to a stored item, whose type may be missing."""
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
        return False
    # Without a role, an item without a type can only be a reference.
    return item.get("type") == "item_reference" or (item.get("type") is None and "role" not in item)


def _unknown(response_id: str, param: str = "response_id", code: str = "response_not_found") -> UnknownResource:
    return UnknownResource(f"unknown response {response_id!r:.80}", param=param, code=code)


def _page(request: Request) -> _Page:
    """Return the page of a request.

    Raises:
        BadRequest: A value is invalid.
    """
    order = request.query_params.get("order", _ORDERS[-1])
    if order not in _ORDERS:
        raise BadRequest(f"order: expected asc or desc, got {order!r:.40}", param="order", code="invalid_value")
    if "before" in request.query_params:
        raise BadRequest("before: unknown parameter; use after=", param="before", code="invalid_value")
    try:
        return _Page(query_int(request, "limit", _ITEMS, 1, _MAX_ITEMS), order, query_text(request, "after"))
    except Unprocessable as error:
        raise BadRequest(str(error), param=error.param, code="invalid_value") from None


def _listed(items: Sequence[dict[str, Any]], page: _Page) -> dict[str, Any]:
    """Return one page of items.

    Raises:
        BadRequest: No item has the id `after`.
    """
    rows = list(items)
    if page.order == "desc":
        rows.reverse()
    if page.after is not None:
        ids = [row["id"] for row in rows]
        if page.after not in ids:
            raise BadRequest(f"after: unknown item {page.after!r:.80}", param="after", code="invalid_value")
        rows = rows[ids.index(page.after) + 1 :]
    page_rows = rows[: page.limit]
    first_id = last_id = None
    if page_rows:
        first_id, last_id = page_rows[0]["id"], page_rows[-1]["id"]
    return {
        "object": "list",
        "data": page_rows,
        "first_id": first_id,
        "last_id": last_id,
        "has_more": len(rows) > len(page_rows),
    }


def _input(record: RunRecord, journal: Journal) -> tuple[Message, ...]:
    """Return the messages that a client sent for a response, with the conversation before them."""
    messages = tuple(journal.context.conversation)
    # Instructions are the first message of a conversation, see the endpoint.
    if record.response is not None and record.response["instructions"]:
        messages = messages[1:]
    if record.input is None:
        return messages
    return (*messages, *journal.messages[:1])


def _conversation(record: RunRecord, journal: Journal) -> tuple[Message, ...]:
    """Return the conversation of a finished run."""
    # Instructions of a request are valid for one response only, so system messages are not continued.
    history = (*journal.context.conversation, *journal.messages)
    messages = tuple([message for message in history if message.role != "system"])
    if not record.waiting:
        return messages
    # The client knows the calls by the unique ids of the record, the journal has the ids of the model.
    ids = iter([call.call_id for call in record.waiting])
    names = {call.tool for call in record.waiting}
    reply = last_reply(journal)
    calls = [replace(call, id=next(ids)) for call in reply.tool_calls if call.name in names]
    return (*messages, replace(reply, tool_calls=tuple(calls)))
