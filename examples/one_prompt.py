"""One definition of a prompt, four uses: a chat API, three local models, a few-shot evaluation, a fine-tuning row.

Prints:

    == sent to a chat API
    system: You classify reviews of tea shops as good or bad.
    user: Input: The leaves were stale.
    Output: bad

    Warm and friendly.
    == text of qwen2d5
    <|im_start|>system
    You classify reviews of tea shops as good or bad.<|im_end|>
    <|im_start|>user
    Input: The leaves were stale.
    Output: bad

    Warm and friendly.<|im_end|>
    <|im_start|>assistant

    == text of llama3
    <|begin_of_text|><|start_header_id|>system<|end_header_id|>

    You classify reviews of tea shops as good or bad.<|eot_id|><|start_header_id|>user<|end_header_id|>

    Input: The leaves were stale.
    Output: bad

    Warm and friendly.<|eot_id|><|start_header_id|>assistant<|end_header_id|>


    == text of a Jinja chat template
    <s>[INST] You classify reviews of tea shops as good or bad.

    Input: The leaves were stale.
    Output: bad

    Warm and friendly. [/INST]
    == evaluated
    'Warm and friendly.' -> good, right
    'Cold and bitter.' -> bad, right
    == a row to fine-tune with
    learned: 'good<|im_end|>'
"""

import asyncio

from agentkit import Chain, ScriptedModel
from agentkit.prompts import Composition, ExamplesPrompt, Layers, PromptContext, compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplate, JinjaChatTemplate
from agentkit.prompts.evaluation import DatasetReader
from agentkit.prompts.example_selectors import KeywordSelector

# The one definition. Worked examples are selected for the input of the user.
layers = Layers(
    "You classify reviews of tea shops as good or bad.",
    before_input=ExamplesPrompt(selector=KeywordSelector(1)),
)
reader = DatasetReader(["review"], "label")
training = [{"review": "The leaves were stale.", "label": "bad"}, {"review": "A lovely garden.", "label": "good"}]
asked = [{"review": "Warm and friendly.", "label": "good"}, {"review": "Cold and bitter.", "label": "bad"}]
pool = [reader.example(number, row) for number, row in enumerate(training)]


def context(row: dict[str, str]) -> PromptContext:
    return PromptContext(user_input=reader.query(row), examples=pool)


composition: Composition = compose(layers, context(asked[0]))

print("== sent to a chat API")
for message in composition.to_openai()["messages"]:
    print(f"{message['role']}: {message['content']}")

mistral = JinjaChatTemplate(
    "{{ bos_token }}{% for m in messages if m.role == 'user' %}[INST] "
    "{% if loop.first and messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "{{ m.content }} [/INST]{% endfor %}",
    bos_token="<s>",
    eos_token="</s>",
)
local: dict[str, ChatTemplate] = {
    "qwen2d5": CHAT_TEMPLATES.get("qwen2d5")(),
    "llama3": CHAT_TEMPLATES.get("llama3")(),
    "a Jinja chat template": mistral,
}
for name, template in local.items():
    print(f"== text of {name}")
    print(composition.to_text(template))

print("== evaluated")
chain = Chain(ScriptedModel(["good", "bad"]), layers)
for row in asked:
    answer = asyncio.run(chain.run(context(row)))
    print(f"{row['review']!r} -> {answer}, {'right' if answer == row['label'] else 'wrong'}")

print("== a row to fine-tune with")
sample = composition.to_sample("good", local["qwen2d5"])
for start, end in sample["loss_spans"]:
    print(f"learned: {sample['text'][start:end]!r}")
