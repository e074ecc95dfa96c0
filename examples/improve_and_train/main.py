"""Evaluate the support desk, improve a layer of its prompt, and export the good runs for a trainer: offline.

The model is the stand-in of the support desk with a weakness: it offers further help only if its prompt demands it.

Prints:

    before: meets_case 1.00, offers_help 0.00
    --- a/system.rules
    +++ b/system.rules
    @@ -1 +1,2 @@
    -Be friendly.
    +Be friendly.
    +End each answer with: Anything else?
    after: meets_case 1.00, offers_help 1.00
    exported: 7 rows
      assistant: weight 1, calls order_status
      tool: order 17 (kettle): delivered
      assistant: weight 1, order 17 (kettle): delivered. Anything else?
    exported after the erasure of ada: 3 rows
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support_desk"))

from desk import INSTRUCTIONS, desk_agent, store_policies
from evaluate import load_cases
from shop import Customer, open_shop
from stand_in import reply

from agentkit import Agent, Composition, Layers, Memory, Message, RunResult, ScriptedModel
from agentkit.evals import EvalRow, EvaluationReport, Score, evaluate_sync
from agentkit.improve import optimise_sync
from agentkit.memory import Scope
from agentkit.prompts import MemoPrompt, RecalledPrompt, TextPrompt
from agentkit.training import ExportReport, evaluated_runs, export_rows

OFFER = "Anything else?"
CASES = {(case.customer, case.question): case for case in load_cases()}


def weak_stand_in(composition: Composition) -> Message | str:
    """Reply as the stand-in, and offer further help only if the prompt demands it."""
    answer = reply(composition)
    if isinstance(answer, str) and OFFER in composition.system.text:
        return f"{answer} {OFFER}"
    return answer


def approve(call: object) -> bool:
    """Approve each refund: the shop of a run is separate."""
    return True


def meets_case(row: EvalRow, result: RunResult[str]) -> Score:
    """Return 1 if a run meets the expectations of its case."""
    problems = CASES[row.user, row.input].problems(result)
    return Score(not problems, "; ".join(problems))


def offers_help(row: EvalRow, result: RunResult[str]) -> Score:
    """Return 1 if the answer ends with an offer of further help."""
    return Score(result.output.endswith(OFFER), f"the answer must end with {OFFER!r}")


def means(report: EvaluationReport) -> str:
    return ", ".join([f"{name} {report.summary(name).interval.mean:.2f}" for name in report.score_names])


def improvable_desk(memory: Memory) -> Agent[Customer, str]:
    """Return the agent of the desk, whose rules are a separate layer. A run acts for the customer of its row."""
    layers = Layers(
        system=[TextPrompt(INSTRUCTIONS, name="persona"), TextPrompt("Be friendly.", name="rules")],
        before_input=[MemoPrompt(), RecalledPrompt()],
    )
    agent = desk_agent(memory, ScriptedModel.repeat(weak_stand_in)).with_changes(layers=layers)
    return agent.with_deps(lambda caller: Customer(caller.user, open_shop()))


def export(agent: Agent[Customer, str], folder: Path) -> ExportReport:
    """Write the runs that offer help as rows for OpenAI."""
    runs = evaluated_runs(agent, folder / "out.jsonl")
    return export_rows(runs, folder / "rows.jsonl", format="openai", minimum={"offers_help": 1})


def shown(message: dict[str, Any]) -> str:
    """Return a message of a row on one line."""
    parts = []
    if "weight" in message:
        parts.append(f"weight {message['weight']}")
    parts += [f"calls {call['function']['name']}" for call in message.get("tool_calls", ())]
    if message["content"]:
        parts.append(message["content"])
    return f"{message['role']}: {', '.join(parts)}"


def main(folder: Path) -> None:
    proposals = iter(["Be very friendly.", f"Be friendly.\nEnd each answer with: {OFFER}"])
    reflection = ScriptedModel.repeat(lambda composition: next(proposals))
    rows = [EvalRow(input=question, user=customer) for customer, question in CASES]
    scores = [meets_case, offers_help]
    with Memory(folder / "memory", scope="shop") as memory:
        store_policies(memory)
        agent = improvable_desk(memory)
        print("before:", means(evaluate_sync(agent, rows, scores, approve=approve)))
        better = optimise_sync(agent, rows, scores, parts=["system.rules"], model=reflection, budget=2, approve=approve)
        print(better.diff.replace("\n\\ No newline at end of file", "").strip())
        print("after:", means(evaluate_sync(better.agent, rows, scores, approve=approve, out=folder / "out.jsonl")))

        report = export(better.agent, folder)
        print(f"exported: {report.rows} rows")
        first, *_ = (folder / "rows.jsonl").read_text("utf-8").splitlines()
        for message in json.loads(first)["messages"][-3:]:
            print("  " + shown(message))
        memory.erase(Scope("shop", user="ada"))
        print(f"exported after the erasure of ada: {export(better.agent, folder).rows} rows")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
