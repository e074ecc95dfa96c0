"""The two example programs: their evaluations pass with the offline models, and fail when something is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.forks import AGENTS, MEMORIES, forks
from tests.paths import ROOT
from tests.servers import ChatServer, chat_reply

DESK, DOCUMENTS = ROOT / "examples/support_desk", ROOT / "examples/questions_over_documents"


class Ended(NamedTuple):
    """Exit code and outputs of a program that ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Ended]]:
    with forks(tmp_path_factory.mktemp("forks"), *AGENTS, *MEMORIES) as programs:

        def end(folder: Path, *arguments: str, **environment: str) -> Ended:
            script = arguments if arguments[0] == "-c" else (str(folder / arguments[0]), *arguments[1:])
            process = programs.start(*script, cwd=folder, PYTHONIOENCODING="utf-8", **environment)
            return Ended(process.wait(), process.output(), process.errors())

        yield end


Run = Callable[..., Ended]


@pytest.mark.parametrize("folder", [DESK, DOCUMENTS], ids=lambda folder: folder.name)
def test_the_evaluation_of_a_program_passes(run: Run, folder: Path) -> None:
    done = run(folder, "evaluate.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= 3


def test_the_evaluation_of_the_desk_names_the_failed_cases_of_a_poor_model(run: Run) -> None:
    code = """
        from agentkit import ScriptedModel
        from evaluate import evaluate
        print(evaluate(ScriptedModel.repeat("The kettle is refunded.")))
    """
    done = run(DESK, "-c", textwrap.dedent(code))
    assert done.stderr == ""
    failed = done.stdout.splitlines()[-1]
    assert "Where is order 17?" in failed
    assert "Do you sell cars?" not in failed
    assert "called [], expected ['order_status']; 'delivered' is missing" in done.stdout


def test_a_tool_of_the_desk_that_forgets_the_customer_fails_its_evaluation(run: Run) -> None:
    code = """
        import shop
        def order(self, number):
            return self.database.execute(
                "select goods, price, status from orders where number = ?", (number,)
            ).fetchone()
        shop.Customer.order = order
        from desk import desk_model
        from evaluate import evaluate
        print(evaluate(desk_model()))
    """
    done = run(DESK, "-c", textwrap.dedent(code))
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "['Where is order 17?', 'Refund 39 EUR for order 17.']"


def test_the_desk_requests_approval_of_each_refund_and_pays_no_order_twice(run: Run) -> None:
    code = """
        import tempfile
        from agentkit import Memory, Message, ScriptedModel, ToolCall
        from desk import desk_agent, store_policies
        from main import ask
        from shop import Customer, open_shop

        def refund(id):
            return Message("assistant", tool_calls=(ToolCall(id, "refund", {"number": "18", "amount": 60}),))

        model = ScriptedModel([refund("a"), refund("b"), lambda sent: sent.messages[-1].text])
        with tempfile.TemporaryDirectory() as home, Memory(home, scope="shop") as memory:
            print(ask(desk_agent(memory, model), memory, Customer("ada", open_shop()), "Refund order 18."))
    """
    done = run(DESK, "-c", textwrap.dedent(code))
    assert done.stderr == ""
    *questions, answer = done.stdout.splitlines()
    assert len(questions) == 2
    assert "at most 20 EUR" in answer


def test_a_chat_with_the_desk_ends_with_its_input(run: Run) -> None:
    done = run(DESK, "main.py", "--chat", "ada")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_evaluation_of_documents_fails_below_its_goal(run: Run) -> None:
    code = """
        import sys, evaluate
        from agentkit import ScriptedModel
        evaluate.answering_model = lambda: ScriptedModel.repeat("80 degrees, says [notes/none.md#0].")
        sys.exit(evaluate.main())
    """
    done = run(DOCUMENTS, "-c", textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (1, "")
    assert "100%" in done.stdout  # recall does not depend on the model


@pytest.mark.parametrize("folder", [DESK, DOCUMENTS], ids=lambda folder: folder.name)
def test_a_program_uses_the_model_of_the_environment(run: Run, folder: Path, server: ChatServer) -> None:
    server.on("small", chat_reply("From the endpoint."))
    done = run(folder, "main.py", MODEL=f"{server.url}#small")
    assert (done.returncode, done.stderr) == (0, "")
    assert "From the endpoint." in done.stdout
