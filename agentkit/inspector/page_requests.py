"""Bodies of the requests of the page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

from agentkit.ground.request_json import request_json
from agentkit.runs.run_record import RunOrder, RunState, RunsWanted

Name = Annotated[str, Field(max_length=4_000)]


def _parsed(value: object) -> object:
    """Return the value of JSON text, and any other value unchanged; refuse a name that occurs twice in an object."""
    if isinstance(value, str):
        return request_json(value.encode("utf-8", "surrogatepass"))
    return value


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Base(_Body):
    """A model call: of a run, of a turn of a session, or the first call of a new run."""

    run: Name | None = None
    session: Name | None = None
    turn: int | Literal["last"] | None = None
    agent: Name | None = None
    """Agent that composes; by default the agent of the turn's run, or else the latest agent of the session."""
    step: int | None = None
    """Number of the model call, from 1; None for the last call."""


class ListRequest(_Body):
    """Query of a part of the list of runs. An empty text is no filter."""

    state: RunState | Literal[""] = ""
    agent: Name = ""
    user: Name = ""
    error: Name = ""
    tag: Name = ""
    text: Name = ""
    order: RunOrder = "newest"
    before: Name | None = None

    def wanted(self, limit: int) -> RunsWanted:
        """Return the filters."""
        return RunsWanted(
            state=self.state or None,
            agent=self.agent or None,
            user=self.user or None,
            error=self.error or None,
            tag=self.tag or None,
            text=self.text,
            order=self.order,
            before=self.before,
            limit=limit,
        )


class PlaySettings(_Body):
    """Settings that Play can change: settings without secrets, addresses and prices."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    effort: str | None = None


class CompositionRequest(_Body):
    """Request of the composition of a model call, with optional changes."""

    base: Base
    input: str | None = None
    """Changed input; None for no change."""
    kwargs: dict[str, Any] | None = None
    """Changed additional kwargs; None for no change."""
    layers: dict[str, str] = {}
    """Changed templates, by the path of the prompt."""
    budget: StrictInt | Literal["keep"] | None = "keep"
    """Tokens of the budget; None for no budget, "keep" for the budget of the agent."""
    recall: bool = False
    """True to search the memory for the first call of a new run."""
    user: Name | None = None
    """User whose memory is searched; only for a caller that may name users."""
    against: Base | None = None
    """Composition to compare with; by default the composition without the changes."""
    messages: dict[str, str] = {}
    """Changed texts of messages, by names such as `conversation[3]` and `intermediate[0]`."""
    model: Name | None = None
    """Name of another model; None for the model of the agent."""
    settings: PlaySettings | None = None
    """Changed settings of the model."""
    message: int | None = None
    target: str | None = None
    chat_template: str | None = None
    pointer: str | None = None
    journal: bool = False
    """True to include the run in the answer."""
    is_beginning: bool = False
    """True to compose the last model call in the first lines of the journal, if the requested call is later."""

    @property
    def is_changed(self) -> bool:
        """True if the request changes the prompt or its model."""
        changes = (self.layers, self.messages, self.model, self.settings)
        return any(changes) or self.budget != "keep" or self.input is not None or self.kwargs is not None


class EventsRequest(_Body):
    """Part of the timeline of a run, or of an agent that ran inside of the run."""

    run: Name
    start: Annotated[int, Field(ge=0)] = 0
    calls: Annotated[list[Name], Field(max_length=100)] = []
    """Ids of the calls that lead to the inner agent, the outermost first; empty for the run."""


class TestCase(CompositionRequest):
    """A model call with optional changes, whose input and conversation become a test case."""

    expected: str
    tags: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50)] = []


class Start(_Body):
    """Input of a new run."""

    agent: Name
    input: str
    kwargs: dict[str, Any] = {}
    session: Name | None = None
    user: Name | None = None
    """User for whom the run acts; only for a caller that may name users."""
    tags: list[str] = []


class Decided(_Body):
    """A decision about a call."""

    approve: bool
    reason: str = ""
    arguments: Annotated[dict[str, Any] | None, BeforeValidator(_parsed)] = None
    """An object, or JSON text: a browser would round large numbers of an object."""


class Decide(_Body):
    """Decisions about the calls of a paused run, by the ids of the calls."""

    run: Name
    decisions: dict[str, Decided]


class RecallNow(_Body):
    """Query for the memory of an agent."""

    agent: Name
    query: str
    user: Name | None = None
    """User whose memory is searched; only for a caller that may name users."""
    limit: Annotated[int, Field(ge=1, le=100)] = 10
