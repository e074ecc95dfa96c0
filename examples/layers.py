"""A prompt of several layers without a model: its tokens, its required kwargs, and its cuts by a budget.

Prints:

    needs: project_root
    everything:
      system[0]        TextPrompt       9 kept
      before_input[0]  sources         31 kept
      input[0]         UserInputPrompt  5 kept
      overhead         message framing  8 kept
    within 50 tokens:
      system[0]        TextPrompt       9 kept
      before_input[0]  sources         16 trimmed
      input[0]         UserInputPrompt  5 kept
      overhead         message framing  8 kept
    missing: ['project_root']
"""

from agentkit.prompts import (
    Composition,
    Document,
    KwargsError,
    Layers,
    MemoPrompt,
    PromptContext,
    TextPrompt,
    UserInput,
    compose,
)

layers = Layers(
    system=TextPrompt("You explain the code in {{ additional_kwargs.project_root }}.", volatility="session"),
    before_input=MemoPrompt(name="sources"),
)
context = PromptContext(
    user_input=UserInput("Where is the loop?", additional_kwargs={"project_root": "~/agentkit"}),
    documents=[
        Document("The loop is a generator without I/O.", id="1", source="docs/architecture.md"),
        Document("Drivers perform its I/O requests.", id="2", source="docs/architecture.md"),
    ],
)


def show(title: str, composition: Composition) -> None:
    print(f"{title}:")
    for row in composition.explain():
        print(f"  {row.layer:<16} {row.prompt:<15} {row.tokens:>2} {row.status}")


schema = layers.additional_kwargs_schema or {}
print("needs:", ", ".join(schema["required"]))
show("everything", compose(layers, context))
show("within 50 tokens", compose(layers, context, budget=50))
try:
    layers.check_kwargs({})
except KwargsError as error:
    print("missing:", list(error.problems))
