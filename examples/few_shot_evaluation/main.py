"""Evaluation of a model on the rows of a shipped configuration, with two worked examples before each row.

Prints:

    sums asks, after two worked examples:
    user: Question: 2 + 2 / Answer:
    assistant: 4
    user: Question: 3 + 3 / Answer:
    assistant: 6
    user: Question: 1 + 1 / Answer:
    Evaluation(4 rows, score=0.7500)
    wrong: 7 + 8 is not 12
"""

import os
from pathlib import Path

from agentkit import Composition, OpenAIModel, ScriptedModel
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import ApiMetaTemplate, InContext, chat_messages, load_datasets, load_rows

HOME = Path(__file__).parent
META = ApiMetaTemplate({"round": [{"role": "HUMAN"}, {"role": "BOT", "generate": True}]})

(dataset,) = load_datasets(HOME / "sums.py")
rows = load_rows(HOME / dataset["path"])

icl = InContext.from_cfg(dataset["infer_cfg"], dataset["reader_cfg"], train=rows["train"])
print(f"{dataset['abbr']} asks, after two worked examples:")
for message in chat_messages(icl.final(rows["test"][0], META, ids=[0, 1])):
    print(f"{message['role']}: {message['content'].replace(chr(10), ' / ')}")


def adds(asked: Composition) -> str:
    """Answer as a model that is wrong about sums above twelve."""
    one, other = asked.messages[-1].text.splitlines()[0].removeprefix("Question: ").split(" + ")
    return str(min(int(one) + int(other), 12))


model = (
    OpenAIModel(os.environ["MODEL"], base_url=os.environ["BASE_URL"], api_key="none")
    if "BASE_URL" in os.environ
    else ScriptedModel.repeat(adds)
)
found = evaluation.run_sync(dataset, rows, model)

print(found)
for row in found.rows:
    if not row.score:
        print(f"wrong: {rows['test'][row.row]['question']} is not {row.answer}")
