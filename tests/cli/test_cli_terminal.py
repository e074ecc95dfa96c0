"""`agentkit chat` at a real terminal: input, output, and the keys that stop and exit."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

import pytest

from agentkit import Agent, Composition, Message, ModelError, ScriptedModel, ToolCall, tool
from agentkit.cli.asked_form import filled_form
from agentkit.cli.commands.terminal_chat import Chat
from agentkit.cli.default_agent import default_agent
from agentkit.guards import Ask, guard
from agentkit.memory import Memory
from agentkit.tools import ToolContext
from tests.cli.conftest import MAIN
from tests.servers import ChatServer, chat_reply, chunk, in_turn, sends, streams
from tests.waiting import LONG

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")

CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """A process on a separate pseudo-terminal."""

    def __init__(self, *arguments: str, code: str = MAIN, **environment: str) -> None:
        import fcntl
        import pty
        import termios

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background

        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb", **environment},
            preexec_fn=own_terminal,
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0

    def type(self, keys: str | bytes) -> None:
        os.write(self.master, keys.encode() if isinstance(keys, str) else keys)

    def wait_for(self, pattern: str) -> None:
        """Read until the text since the last call matches."""
        deadline = time.monotonic() + LONG
        while not (found := re.search(pattern, self.shown[self._seen :])):
            if not self._read(deadline):
                raise AssertionError(f"{pattern!r} did not come; there is {self.shown!r}")
        self._seen += found.end()

    def end(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + LONG
        while self._read(deadline):
            pass
        return self.process.wait(LONG)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
        try:
            piece = os.read(self.master, 1 << 16) if ready else b""
        except OSError:  # the error of Linux when the other side is closed
            piece = b""
        self.shown += piece.decode("utf-8", "replace")
        return bool(piece)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LONG)
        os.close(self.master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def chat(terminals: list[Terminal]) -> Iterator[Terminal]:
    terminals.append(Terminal("chat", "--session", "s"))
    terminals[-1].wait_for("> ")
    yield terminals[-1]


def open_chat(terminals: list[Terminal], server: ChatServer, model: str) -> Terminal:
    terminals.append(Terminal("chat", "-s", "s", "-m", model, OPENAI_BASE_URL=server.url))
    terminals[-1].wait_for("> ")
    return terminals[-1]


def stored(folder: Path) -> list[str]:
    with Memory(folder / ".agentkit") as memory:
        return [message.text.splitlines()[0] for message in memory.session("s").conversation]


def test_a_chat_prints_how_to_exit_answers_and_shows_the_layers(chat: Terminal) -> None:
    assert "/quit exits; Ctrl-D exits too, and Ctrl-C stops an answer" in chat.shown
    chat.type('use calculate with expression="6 * 7"\n')
    chat.wait_for("calls calculate")
    chat.wait_for("42\r\n")
    chat.wait_for("> ")
    chat.type("/layers\n")
    chat.wait_for(r"intermediate +2 messages")
    chat.wait_for("> ")
    chat.type("/quit\n")
    assert chat.end() == 0


def test_ctrl_c_at_the_prompt_exits_cleanly(chat: Terminal) -> None:
    chat.type(CTRL_C)
    assert chat.end() == 0
    assert "Traceback" not in chat.shown
    assert "Aborted" not in chat.shown


def test_a_ctrl_c_that_does_not_interrupt_the_wait_for_a_key_also_exits(terminals: list[Terminal]) -> None:
    elsewhere = (  # the signal reaches another thread, as if it came before `input` waits
        "import signal, threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
    )
    terminals.append(Terminal("chat", code=elsewhere + MAIN))
    terminals[-1].wait_for("> ")
    terminals[-1].type(CTRL_C)
    assert terminals[-1].end() == 0
    assert "Traceback" not in terminals[-1].shown


def test_ctrl_c_and_an_error_end_an_answer_and_the_chat_continues_until_ctrl_d(
    terminals: list[Terminal], server: ChatServer, folder: Path
) -> None:
    def forever() -> Iterator[dict[str, object]]:
        while True:
            yield chunk(content="word ")

    error = sends({"error": {"message": "not now"}}, 400)
    server.on("endless", in_turn(streams(forever, pause=0.01), chat_reply("Enough."), error, chat_reply("Now.")))
    terminal = open_chat(terminals, server, "endless")
    terminal.type("talk\n")
    terminal.wait_for("word word")
    terminal.type(CTRL_C)
    terminal.wait_for("stopped")
    terminal.wait_for("> ")
    terminal.type("still there?\n")
    terminal.wait_for("Enough.")
    terminal.wait_for("> ")
    terminal.type("hello\n")
    terminal.wait_for("agentkit: endless at .*: 400: not now")
    terminal.wait_for("> ")
    terminal.type("hello?\n")
    terminal.wait_for("Now.")
    terminal.wait_for("> ")
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown and "Aborted" not in terminal.shown
    assert stored(folder) == ["talk", "still there?", "Enough.", "hello", "hello?", "Now."]


def test_ctrl_c_ends_a_single_answer_with_the_exit_code_of_an_interrupt(
    terminals: list[Terminal], server: ChatServer
) -> None:
    def forever() -> Iterator[dict[str, object]]:
        while True:
            yield chunk(content="word ")

    server.on("endless", streams(forever, pause=0.01))
    terminals.append(Terminal("chat", "-m", "endless", "--once", "talk", OPENAI_BASE_URL=server.url))
    terminals[-1].wait_for("word word")
    terminals[-1].type(CTRL_C)
    assert terminals[-1].end() == 130
    assert "stopped; stored data is not lost" in terminals[-1].shown
    assert "Traceback" not in terminals[-1].shown


def test_a_chat_in_this_process_reads_its_turns_from_a_terminal(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    import pty

    def interrupts(composition: Composition) -> str:
        raise KeyboardInterrupt

    model = ScriptedModel([ModelError("not now"), "Now.", interrupts])
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as stdin, open(os.dup(slave), "w", encoding="utf-8") as stdout:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        os.write(master, b"hello\n\nagain\nand again\n/layers\n" + CTRL_D)
        with Memory(folder / ".agentkit") as memory:
            Chat(default_agent(model, memory), memory, "s").talk()
        shown = ""
        while "conversation" not in shown:  # a layer of the last request; it arrives in pieces
            assert select.select([master], [], [], 30)[0], shown
            shown += os.read(master, 1 << 16).decode()
    os.close(master)
    assert "Now.\r\n" in shown
    assert stored(folder) == ["hello", "again", "Now.", "and again"]


def test_a_person_sees_the_arguments_of_the_tool_before_the_approval(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import pty

    paid: list[object] = []

    @tool(approval="always")
    def pay(amount: int, memo: str, to: str = "the shop") -> str:
        paid.append((amount, to))
        return "ok"

    def pays(id: str, arguments: str) -> Message:
        return Message("assistant", tool_calls=(ToolCall(id, "pay", arguments),))

    memo = "Order 4711, thank you. " * 12
    twice = '{"amount": 30, "to": "the shop", "memo": "' + memo + '", "to": "mallory", "amount": 900000}'
    once = json.dumps({"memo": memo, "amount": "900000"})
    agent = Agent(ScriptedModel([pays("c1", twice), pays("c2", once), "Paid."]), "x", tools=[pay], name="bank")
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as stdin, open(os.dup(slave), "w", encoding="utf-8") as stdout:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        os.write(master, b"pay\nshow\ny\n" + CTRL_D)
        with Memory(folder / ".agentkit") as memory:
            Chat(agent, memory, "s").talk()
    os.close(master)
    before, _, after = capfd.readouterr().err.partition("pay (c2) with:")
    cut, _, whole = after.partition("needs your approval")
    assert "needs your approval" not in before  # the first call, with names that occur twice, is refused
    assert "  amount: 900000\n" in cut and '  to: "the shop"\n' in cut and f"(cut: {len(memo) + 2} characters)" in cut
    assert json.dumps(memo) in whole
    assert paid == [(900000, "the shop")]


def test_an_answer_that_is_not_text_is_printed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    import pty

    @guard("output")
    def check(text: str) -> Ask | None:
        return Ask("promises money") if "30 EUR" in text else None

    @tool(final=True)
    def count() -> str:
        return "four lamps"

    counts = Message("assistant", tool_calls=(ToolCall("c1", "count", "{}"),))
    agent = Agent(ScriptedModel(["You get 30 EUR.", counts, "Bye."]), "x", tools=[count], guards=[check], name="shop")
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as stdin, open(os.dup(slave), "w", encoding="utf-8") as stdout:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        os.write(master, b"hello\ny\nhow many\nbye\n" + CTRL_D)
        with Memory(folder / ".agentkit") as memory:
            Chat(agent, memory, "s").talk()
        shown = os.read(master, 65536).decode()
    os.close(master)
    assert [shown.count(text) for text in ("You get 30 EUR.", "four lamps", "Bye.")] == [1, 1, 1]


def test_a_person_fills_in_the_form_of_a_tool(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import pty

    sold: list[object] = []
    fields = {
        "size": {"type": "string", "enum": ["S", "L"]},
        "count": {"type": "integer", "default": 1},
        "note": {"type": "string", "description": "For the parcel"},
    }

    @tool
    async def order(context: ToolContext) -> str:
        """Order."""
        form = await context.ask("Which shirt?", {"type": "object", "properties": fields, "required": ["size"]})
        sold.append(form)
        return "ok"

    call = Message("assistant", tool_calls=(ToolCall("c1", "order", "{}"),))
    agent = Agent(ScriptedModel([call, "Sold.", call, "No."]), "x", tools=[order], name="shop")
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as stdin, open(os.dup(slave), "w", encoding="utf-8") as stdout:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        # The first answer is not a size.
        os.write(master, b"go\ny\nM\n\n\ny\nL\n2\nred\nagain\nn\n" + CTRL_D)
        with Memory(folder / ".agentkit") as memory:
            Chat(agent, memory, "s").talk()
    os.close(master)
    assert capfd.readouterr().err.count("Which shirt?") == 3
    assert sold == [{"size": "L", "count": 2, "note": "red"}, None]


def test_the_choices_of_a_form_are_listed() -> None:
    small = {"const": "S", "title": "Small"}
    fields = {
        "one": {"type": "string", "enum": ["S", "L"]},
        "titled": {"type": "string", "oneOf": [small, {"const": "L"}]},
        "several": {"type": "array", "items": {"anyOf": [small, {"const": "L", "title": "Large"}]}},
    }
    form = {"question": "Which?", "fields": fields, "required": [*fields], "answer": {}}
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return "y"

    filled_form(ToolCall("c1/ask-1", "fill_in_form", json.dumps(form)), ask)
    assert asked[1:] == ["one (S | L): ", "titled (S = Small | L): ", "several (S = Small | L = Large; array): "]


@pytest.mark.parametrize("end", ["stdin", "stdout"])
def test_with_one_end_at_a_terminal_no_prompt_is_printed_and_an_error_ends_the_chat(
    monkeypatch: pytest.MonkeyPatch, folder: Path, end: str
) -> None:
    import pty

    master, slave = pty.openpty()
    other = folder / "other"
    other.write_text("hello\n", "utf-8")
    with open(slave, "r+b", buffering=0) as raw, other.open("r+", encoding="utf-8") as piped:  # noqa: PTH123
        terminal = TextIOWrapper(raw, encoding="utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdin", terminal if end == "stdin" else piped)
        monkeypatch.setattr(sys, "stdout", piped if end == "stdin" else terminal)
        os.write(master, b"hello\n" + CTRL_D)
        with Memory(folder / ".agentkit") as memory, pytest.raises(ModelError):
            Chat(default_agent(ScriptedModel([ModelError("not now")]), memory), memory, "s").talk()
        terminal.detach()
    os.close(master)
    assert "> " not in other.read_text("utf-8")
    assert stored(folder) == ["hello"]


def test_a_line_that_is_typed_during_a_run_is_sent_to_the_run(terminals: list[Terminal], tmp_path: Path) -> None:
    (tmp_path / "lookouts.py").write_text(
        "import time\n"
        "from agentkit import Agent, ScriptedModel, ToolCall, tool\n"
        "@tool\n"
        "def look() -> str:\n"
        '    """Look."""\n'
        "    while not __import__('os').path.exists('go'):\n"
        "        time.sleep(0.02)\n"
        "    return 'there'\n"
        "def heard(sent):\n"
        "    return 'Heard: ' + sent.messages[-1].text\n"
        "model = ScriptedModel([ToolCall(name='look', arguments={}), heard])\n"
        "agent = Agent(model, tools=[look])\n"
    )
    terminal = Terminal("chat", "-s", "s", "--agent", "lookouts:agent", PYTHONPATH=str(tmp_path))
    terminals.append(terminal)
    terminal.wait_for("> ")
    terminal.type("Is a there?\n")
    terminal.wait_for("calls look")
    terminal.type("And b?\n")
    terminal.wait_for("sent to the run")
    terminal.type("/cost\n")
    Path("go").touch()
    terminal.wait_for("Heard: And b?")
    terminal.wait_for("1 turns")  # a command waits for the end of the run
    terminal.wait_for("> ")
    terminal.type("/quit\n")
    assert terminal.end() == 0
