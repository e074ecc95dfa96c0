"""Three agents: a desk hands each question over to the agent that knows the subject.

The desk has two tools, which are agents. A tool with `final=True` ends the run of the desk: the answer of the inner
agent is the answer of the desk. The limits of the desk count the tokens of all three.

Prints:

    My invoice is wrong. -> billing: I sent you a new invoice.
    My kettle leaks. -> repairs: Send it in, the label is in your mail.
    requests: desk 2, billing 1, repairs 1
"""

from agentkit import Agent, Limits, Message, ScriptedModel, ToolCall


def hand_over(to: str, text: str) -> Message:
    """Return a reply that calls the tool of another agent."""
    return Message("assistant", tool_calls=(ToolCall(id=f"to_{to}", name=to, arguments={"input": text}),))


billing_model = ScriptedModel(["I sent you a new invoice."])
repairs_model = ScriptedModel(["Send it in, the label is in your mail."])
desk_model = ScriptedModel([hand_over("billing", "wrong invoice"), hand_over("repairs", "leaking kettle")])

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
print("requests:", ", ".join(f"{name} {len(model.requests)}" for name, model in models.items()))
