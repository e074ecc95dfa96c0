"""Journals: a run that was interrupted anywhere resumes from its journal, without repeated calls or lost messages."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    Approved,
    Denied,
    Document,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    PromptContext,
    ScriptedModel,
    Session,
    ToolFinished,
    Usage,
    UserInput,
    tool,
)
from agentkit.errors import ApprovalError, JournalError, NothingToContinue, RunIdReused
from agentkit.memory import Memory
from agentkit.prompts import AdditionalInfoPrompt, Image, Layers, MemoPrompt, Template
from tests.raising import raises
from tests.runtime.scripts import Forgetful, Library, calling, roles, valid


class Killed(BaseException):
    """The process was killed."""


class Accounts:
    """Tools with effects that can be counted, by idempotency key."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        def look(name: str) -> str:
            """Look up a balance."""
            return f"{name}: 5"

        @tool(approval="always")
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(str(amount))
            return f"paid {amount}"

        return [look, pay]


SCRIPT = (
    calling(("look", {"name": "ada"}), ("look", {"name": "bob"}), text="Looking."),
    calling(("pay", {"amount": 3}), ("look", {"name": "eve"})),
    "Paid.",
)


def bank(accounts: Accounts, script: tuple[Any, ...] = SCRIPT) -> Agent:
    layers = Layers("You pay bills.", before_input=MemoPrompt())
    library = Library("Bills are due on Fridays.")
    return Agent(ScriptedModel(script), layers=layers, tools=accounts.tools(), memory=library, name="bank")


def rest(journal: Journal) -> tuple[Any, ...]:
    """Return the remaining replies of the model."""
    return SCRIPT[sum(entry.effect == "CallModel" for entry in journal.entries) :]


def test_a_run_killed_before_any_line_of_its_journal_resumes_with_the_same_messages() -> None:
    lines: list[str] = []
    whole = bank(Accounts()).run_sync("pay", run_id="r", approve=lambda call: True, journal=lines.append)
    assert whole.journal is not None and "".join(lines) == whole.journal.dumps()
    for count in range(1, len(lines) + 1):
        accounts = Accounts()
        known = Journal.loads("".join(lines[:count]))
        resumed = bank(accounts, rest(known)).resume_sync(known, approve=lambda call: True)
        assert (resumed.output, resumed.messages) == (whole.output, whole.messages), count
        assert resumed.usage == whole.usage and resumed.steps == whole.steps
        assert accounts.paid == [] if any("paid 3" in line for line in lines[:count]) else ["3"]
        assert resumed.journal is not None and resumed.journal.dumps().startswith("".join(lines[:count]))


@pytest.mark.parametrize("stored", [False, True])
def test_a_session_contains_each_message_once_after_a_kill_at_any_line(tmp_path: Path, stored: bool) -> None:
    number = 0
    while True:
        memory = Memory(tmp_path / str(number)) if stored else None
        session: Any = memory.session("s") if memory is not None else Session()
        session.append(Message("user", "before"), Message("assistant", "yes"))
        path = tmp_path / f"{number}.jsonl"
        left = [number]

        def count(line: str, path: Path = path, left: list[int] = left) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            with path.open("a") as file:
                file.write(line)

        agent = bank(Accounts())
        try:
            agent.run_sync("pay", session=session, approve=lambda call: True, journal=count, run_id="r")
            break
        except Killed:
            pass
        if number:
            known = Journal.read(path)
            again = bank(Accounts(), rest(known))
            result = again.resume_sync(path, session=session, approve=lambda call: True)
            assert result.output == "Paid."
            assert Journal.read(path).messages == result.messages
        else:
            result = bank(Accounts()).run_sync("pay", session=session, approve=lambda call: True, run_id="r")
        assert tuple(session.conversation) == (*session.conversation[:2], *result.messages)
        assert roles(session.conversation) == "user assistant user assistant tool tool assistant tool tool assistant"
        if memory is not None:
            memory.close()
        number += 1
    assert number > 8


def test_a_paused_run_resumes_in_another_process_with_decisions_by_call() -> None:
    with pytest.raises(Paused) as paused:
        bank(Accounts()).run_sync("pay")
    assert [call.name for call in paused.value.calls] == ["pay"]
    text = paused.value.journal.dumps()
    (call,) = paused.value.calls
    for decision, shown in ((True, "paid 3"), (Approved({"amount": 4}), "paid 4"), (Denied("no money"), "no money")):
        accounts = Accounts()
        agent = bank(accounts, SCRIPT[2:])
        result = agent.resume_sync(Journal.loads(text), approve={call.id: decision})
        assert shown in next(message.text for message in result.messages if message.tool_call_id == call.id)
        assert len(accounts.paid) == (decision is True or isinstance(decision, Approved))
    with pytest.raises(Paused):
        bank(Accounts()).resume_sync(Journal.loads(text))
    with raises(ApprovalError, name="approve", value="other"):
        bank(Accounts()).resume_sync(Journal.loads(text), approve={call.id: True, "other": True})


def test_every_error_of_a_run_carries_its_messages_usage_and_journal_and_can_be_pickled() -> None:
    agent = Agent(ScriptedModel([calling(("look", {"name": "a"})), OSError("gone")]), tools=Accounts().tools())
    with pytest.raises(OSError) as failed:
        agent.run_sync("go")
    assert roles(failed.value.messages) == "user assistant tool"  # type: ignore[attr-defined]
    assert isinstance(failed.value.usage, Usage)  # type: ignore[attr-defined]
    limited = Agent(ScriptedModel.repeat(calling("look")), tools=Accounts().tools(), limits=Limits(steps=2))
    with pytest.raises(LimitExceeded) as over:
        limited.run_sync("go")
    copied = pickle.loads(pickle.dumps(over.value))
    assert (copied.limit, str(copied), copied.messages) == ("steps", str(over.value), over.value.messages)
    assert copied.journal.dumps() == over.value.journal.dumps()


def test_results_of_tools_are_in_the_error_if_they_cannot_be_stored() -> None:
    session = Forgetful(good=1)
    agent = bank(Accounts(), (calling(("look", {"name": "a"})),))
    with raises(OSError, args=("the disk is gone",)) as lost:
        agent.run_sync("go", session=session)
    assert [message.text for message in lost.value.messages] == ["go", "", "a: 5"]  # type: ignore[attr-defined]
    session.good = 9
    journal = lost.value.journal  # type: ignore[attr-defined]
    assert bank(Accounts(), ("Done.",)).resume_sync(journal, session=session).output == "Done."
    assert [message.text for message in session.conversation] == ["go", "", "a: 5", "Done."]


def test_results_of_tools_are_stored_although_another_process_wrote_meanwhile(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("s")

        @tool
        def write() -> str:
            """Write."""
            memory.session("s").append(Message("user", "aside"), Message("assistant", "noted"))
            return "written"

        result = Agent(ScriptedModel([calling("write"), "Done."]), tools=[write]).run_sync("go", session=session)
        assert result.output == "Done."
        assert valid(session.conversation)
        assert "written" in [message.text for message in session.conversation]


def test_a_failed_run_continues_without_new_input() -> None:
    session = Session()
    agent = bank(Accounts(), (SCRIPT[0], OSError("gone"), "Fine."))
    with pytest.raises(OSError):
        agent.run_sync("look", session=session)
    result = agent.run_sync(None, session=session)
    assert result.output == "Fine."
    assert roles(session.conversation) == "user assistant tool tool assistant"
    with raises(NothingToContinue, name="user_input", value="answered"):
        agent.run_sync(None, session=session)
    with raises(NothingToContinue, name="user_input", value="no question"):
        agent.run_sync(None, session=Session())


def test_a_run_id_that_is_used_again_stores_and_shows_each_message_once() -> None:
    session = Session()
    agent = bank(Accounts(), (SCRIPT[0], OSError("gone"), "Fine.", "never"))
    with pytest.raises(OSError):
        agent.run_sync("look", session=session, run_id="r")
    result = agent.run_sync("look", session=session, run_id="r")
    assert roles(result.composition.messages) == "system user assistant tool tool"
    assert roles(session.conversation) == "user assistant tool tool assistant"
    again = agent.run_sync("look", session=session, run_id="r")
    assert (again.output, again.messages) == ("Fine.", result.messages)
    with pytest.raises(RunIdReused):
        agent.run_sync("something else", session=session, run_id="r")


def test_a_conversation_is_busy_for_all_its_session_objects(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        found: list[BaseException] = []

        @tool
        def inner() -> str:
            """Run on the same conversation."""
            try:
                Agent(ScriptedModel(["x"])).run_sync("y", session=memory.session("s"))
            except Exception as error:
                found.append(error)
            return "tried"

        Agent(ScriptedModel([calling("inner"), "Done."]), tools=[inner]).run_sync("go", session=memory.session("s"))
        assert [type(error).__name__ for error in found] == ["SessionBusy"]


HEAD = Journal("agent", "r", PromptContext(user_input="hi")).dumps()
RESULT = (
    '{"effect": "CallTools", "answer": {"call_id": "c1", "name": "pay", "content": "", "status": "success", '
    '"whole": null, "usage": null}}\n'
)


@pytest.mark.parametrize(
    ("text", "line", "name", "value"),
    [
        ("", 1, None, None),
        (HEAD[:20], 1, None, None),
        ("[]\n", 1, None, "list"),
        ('{"a": 1}\n', 1, "journal", None),
        (HEAD.replace('"journal":1', '"journal":2'), 1, "journal", 2),
        (HEAD.replace('"journal":1', '"journal":0'), 1, "journal", 0),
        (HEAD.replace('"journal":1', '"journal":-1'), 1, "journal", -1),
        (HEAD.replace('"run_id":"r",', ""), 1, "run_id", None),
        (HEAD + "nonsense\n", 2, None, None),
        (HEAD + '{"effect": "Sing", "answer": 1}\n', 2, None, "TypeError"),
        (HEAD + '{"effect": "CallModel", "answer": {"message": 5}}\n', 2, None, "ValidationError"),
        (HEAD + '{"effect": "CallTools", "answer": 7}\n', 2, None, "TypeError"),
        (HEAD.replace('"run_id":"r"', '"run_id":["r"]'), 1, None, "TypeError"),
        (HEAD.replace('"session":null', '"session":{}'), 1, None, "TypeError"),
        (HEAD.replace('"scope":null', '"scope":[null]'), 1, None, "TypeError"),
        (HEAD.replace('"version":""', '"version":5'), 1, None, "TypeError"),
        (HEAD.replace('"parts":{}', '"parts":5'), 1, None, "TypeError"),
        (HEAD.replace('"parts":{}', '"parts":{"system":5}'), 1, None, "TypeError"),
        (HEAD + RESULT.replace('"c1"', "{}"), 2, None, "TypeError"),
        (HEAD + RESULT.replace('"c1"', '""'), 2, None, "ValueError"),
        (HEAD + RESULT.replace('"pay"', "[]"), 2, None, "TypeError"),
        (HEAD + RESULT.replace('"success"', '"fine"'), 2, None, "ValidationError"),
        (
            HEAD + '{"effect": "AskApproval", "answer": {"c": {"approve": true, "arguments": [1]}}}\n',
            2,
            None,
            "TypeError",
        ),
        (
            HEAD + '{"effect": "AskApproval", "answer": {"c1": {"approve": false, "reason": {}}}}\n',
            2,
            None,
            "TypeError",
        ),
    ],
)
def test_an_unreadable_journal_is_refused_with_its_line(
    text: str, line: int, name: str | None, value: str | int | None
) -> None:
    with raises(JournalError, line=line, name=name, value=value):
        Journal.loads(text)


def test_a_journal_can_be_cut_at_any_byte() -> None:
    whole = bank(Accounts()).run_sync("pay", approve=lambda call: True)
    assert whole.journal is not None
    data = whole.journal.dumps().encode()
    for end in range(data.index(b"\n") + 1, len(data)):
        assert len(Journal.loads(data[:end]).entries) == data[:end].count(b"\n") - 1


def test_a_journal_of_another_agent_session_or_prompt_is_refused_before_any_request() -> None:
    with pytest.raises(Paused) as paused:
        bank(Accounts()).run_sync("pay")
    journal = paused.value.journal
    with raises(JournalError, name="agent", value="bank"):
        Agent(ScriptedModel([])).resume_sync(journal)
    with raises(JournalError, name="session"):
        bank(Accounts()).resume_sync(journal, session=Session())
    with raises(JournalError, name="Recall", value="Append"):
        Agent(ScriptedModel([]), name="bank").resume_sync(journal)


def test_a_file_with_a_journal_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Agent(ScriptedModel(["a"])).run_sync("x", journal=path)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with raises(JournalError, value="exists"):
        Agent(ScriptedModel(["a"])).run_sync("x", journal=path)
    assert path.read_bytes() == before


def test_a_journal_contains_the_complete_input() -> None:
    given = PromptContext(
        user_input=UserInput(["Look: ", Image(b"\x89PNG\r\n\x1a\n")], {"root": Path("/srv"), "at": b"\x00\xff"}),
        documents=[Document("a", metadata={"page": 3})],
        session_key="secret",
    )
    agent = Agent(ScriptedModel([OSError("gone")]), layers=Layers(AdditionalInfoPrompt(Template("{{ root }}"))))
    with pytest.raises(OSError) as failed:
        agent.run_sync(given)
    text = failed.value.journal.dumps()  # type: ignore[attr-defined]
    assert "secret" not in text
    read = Journal.loads(text).context
    assert (read.user_input, read.documents) == (given.user_input, given.documents)
    resumed = Agent(ScriptedModel(["ok"]), layers=agent.chain.layers).resume_sync(Journal.loads(text))
    assert resumed.output == "ok" and json.loads(text.splitlines()[0])["journal"] == 1


def test_decisions_by_id_answer_the_waiting_calls_and_later_calls_wait_again() -> None:
    accounts = Accounts()
    replies = [calling(("pay", {"amount": 1}, "one")), calling(("pay", {"amount": 2}, "two")), "paid both"]
    agent = Agent(ScriptedModel(replies), tools=accounts.tools())
    with pytest.raises(Paused) as first:
        agent.run_sync("go")
    with pytest.raises(Paused) as second:
        agent.resume_sync(first.value.journal, approve={"one": True})
    assert ([call.id for call in second.value.calls], accounts.paid) == (["two"], ["1"])
    with raises(ApprovalError, name="approve", value="three"):
        agent.resume_sync(second.value.journal, approve={"two": True, "three": True})
    with raises(ApprovalError, name="approve", value="one"):
        agent.resume_sync(second.value.journal, approve={"one": Denied("no"), "two": True})
    assert agent.resume_sync(second.value.journal, approve={"one": True, "two": True}).output == "paid both"
    assert accounts.paid == ["1", "2"]


def test_calls_of_one_reply_still_wait_if_only_some_are_decided() -> None:
    accounts, pair = Accounts(), calling(("pay", {"amount": 1}, "one"), ("pay", {"amount": 2}, "two"))
    agent, ids = Agent(ScriptedModel([pair, "paid both"]), tools=accounts.tools()), ["one", "two"]
    with pytest.raises(Paused) as paused:
        agent.run_sync("go")
    journal = paused.value.journal
    for some in ids:  # the decision about the other call must not appear as stored
        with pytest.raises(Paused) as paused:
            agent.resume_sync(journal, approve={some: True})
        journal = paused.value.journal
        assert ([call.id for call in paused.value.calls], accounts.paid) == (ids, [])
    assert agent.resume_sync(journal, approve=dict.fromkeys(ids, True)).output == "paid both"


def test_a_listener_that_fails_when_a_call_is_denied_loses_no_result() -> None:
    def fails(event: object) -> None:
        if isinstance(event, ToolFinished):
            raise ValueError("the listener")

    session = Session()
    agent = Agent(ScriptedModel([calling(("pay", {"amount": 1}))]), tools=Accounts().tools())
    with raises(ValueError, args=("the listener",)):
        agent.run_sync("go", session=session, approve=lambda call: Denied("no"), on_event=fails)
    assert roles(session.conversation) == "user assistant tool"


def test_at_a_limit_a_typed_answer_is_none_and_text_is_the_text_so_far() -> None:
    limits = Limits(steps=1, on_limit="return")
    tools = Accounts().tools()
    text = Agent(ScriptedModel([calling(("look", {"name": "a"}), text="I look.")]), tools=tools, limits=limits)
    typed = Agent(
        ScriptedModel([calling(("look", {"name": "a"}), text="I look.")]), tools=tools, limits=limits, output=int
    )
    assert text.run_sync("go").output == "I look."
    found = typed.run_sync("go")
    assert (found.output, found.limit is not None, found.finish_reason) == (None, True, "limit")


UNSTORABLE = PromptContext(user_input="Hi.", extra={"row": object(), "name": "Ada", "then": 2j})
"""Values that a prompt accepts, and that have no JSON form."""


def test_a_journal_without_a_json_form_names_the_problem_and_leaves_its_file_free(tmp_path: Path) -> None:
    agent, file = Agent(ScriptedModel(["Hello.", "Hello."])), tmp_path / "journal"
    with raises(JournalError, name="context") as caught:
        agent.run_sync(UNSTORABLE, journal=file)
    assert agent.run_sync("Hi.", journal=file).output == "Hello."  # while the first error still exists
    assert Journal.read(file).run_id != caught.value.journal.run_id
    result = agent.run_sync(UNSTORABLE)
    with raises(JournalError, name="context"):
        result.journal.dumps()


def test_an_error_is_pickled_even_if_its_journal_has_no_json_form() -> None:
    agent = Agent(ScriptedModel([OSError(5, "gone"), "Hello."]), memory=lambda query: [])
    with raises(OSError, errno=5) as caught:
        agent.run_sync(UNSTORABLE)
    arrived = pickle.loads(pickle.dumps(caught.value))
    assert (str(arrived), arrived.messages, arrived.usage) == (str(caught.value), caught.value.messages, Usage())  # type: ignore[attr-defined]
    for _ in range(2):
        with raises(JournalError, value="left behind"):
            agent.resume_sync(arrived.journal)
        arrived = pickle.loads(pickle.dumps(arrived))
    assert agent.resume_sync(caught.value.journal).output == "Hello."  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [None, 7, Path("run.jsonl"), "run.jsonl", b"run.jsonl"])
def test_a_value_that_is_not_the_text_of_a_journal_is_refused(text: Any) -> None:
    with raises(JournalError, name="text"):
        Journal.loads(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for wrong in (tmp_path, Path("/dev/null")):
        with pytest.raises(OSError) as read:
            Agent(ScriptedModel(["Hello."])).resume_sync(wrong)
        with pytest.raises(OSError) as kept:
            Agent(ScriptedModel(["Hello."])).run_sync("Hi.", journal=wrong)
        assert str(wrong) in str(read.value) and str(wrong) in str(kept.value)


class Counted(list[Any]):
    """Entries that count their reads."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        for entry in super().__iter__():
            self.reads += 1
            yield entry

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return super().__getitem__(at)


def test_the_steps_of_a_long_journal_are_read_in_linear_time() -> None:
    count = 200
    model = ScriptedModel([*(calling(("look", {"name": "ada"})) for _ in range(count)), "Done."])
    agent = Agent(model, tools=Accounts().tools(), limits=Limits(steps=count + 1))
    journal = agent.run_sync("go").journal
    journal.entries = Counted(journal.entries)
    steps = journal.steps()
    assert [step.kind for step in steps[:5]] == ["begin", "append", "model", "tool", "append"]
    assert steps[-1].step == count + 1
    assert journal.entries.reads < 4 * len(steps)
