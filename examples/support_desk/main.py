"""A support desk of three agents: the first one hands a conversation over to the one that knows the subject.

The desk sees two tools. A tool that is made with `final=True` ends the run of the desk: what the expert says is the
answer, and the desk is not asked again. Tokens of all three count together.

Prints:

    My invoice is wrong. -> billing: I sent you a new invoice.
    My kettle leaks. -> repairs: Send it in, the label is in your mail.
    asked: desk 2, billing 1, repairs 1
"""

from agentkit import Agent, Limits, Message, ScriptedModel, ToolCall


def hands_over(to: str, text: str) -> Message:
    """Return what a model says to hand over."""
    return Message("assistant", tool_calls=(ToolCall(f"to_{to}", to, f'{{"input": "{text}"}}'),))


billing_model = ScriptedModel(["I sent you a new invoice."])
repairs_model = ScriptedModel(["Send it in, the label is in your mail."])
desk_model = ScriptedModel([hands_over("billing", "wrong invoice"), hands_over("repairs", "leaking kettle")])

billing = Agent(billing_model, "You settle invoices.", name="billing")
repairs = Agent(repairs_model, "You arrange repairs.", name="repairs")
desk = Agent(
    desk_model,
    "You find out who can help, and hand over to them.",
    tools=[
        billing.as_tool(name="billing", description="Knows invoices and payments.", history="text", final=True),
        repairs.as_tool(name="repairs", description="Knows how to repair things.", history="text", final=True),
    ],
    limits=Limits(tokens=20_000),
)

for question in ("My invoice is wrong.", "My kettle leaks."):
    result = desk.run_sync(question)
    print(question, "->", f"{result.messages[1].tool_calls[0].name}: {result.output}")
models = {"desk": desk_model, "billing": billing_model, "repairs": repairs_model}
print("asked:", ", ".join(f"{name} {len(model.requests)}" for name, model in models.items()))
