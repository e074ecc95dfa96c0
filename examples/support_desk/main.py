"""A support desk of a shop: tools that act for one customer, rules from documents, memory, and approval of refunds.

`MODEL=openai:gpt-5-mini python main.py` uses a real model. `python main.py --chat ada` starts a chat as a customer.

Prints:

    ada: Where is order 17?
    desk: order 17 (kettle): delivered.
    bob: Where is order 17?
    desk: {"error": "bob has no order 17; my_orders lists the orders"}.
    ada: How long can I return an order?
    desk: Orders can be returned within 30 days of delivery, unused and in their box. [policies/returns.md#0]
    ada: Please refund 80 EUR for order 18.
    approval needed: refund {"number": "18", "amount": 80}
    desk: refunded 80 EUR for order 18 (teapot).
    status of order 18: refunded
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from functools import partial

from desk import desk_agent, desk_model, store_policies
from shop import Customer, open_shop

from agentkit import Agent, Memory, Paused, ToolCall
from agentkit.memory import Scope

SHOP = "shop"
"""Tenant of the shop: its customers share the policies, and nothing else."""


def ask(agent: Agent[Customer, str], memory: Memory, customer: Customer, text: str) -> str:
    """Return the answer to a customer, in the session of this customer; a person decides about expensive refunds."""
    session = memory.within(Scope(SHOP, user=customer.name)).session("chat")
    start = partial(agent.run_sync, text)
    while True:
        try:
            return str(start(session=session, deps=customer))
        except Paused as paused:  # a resumed run can pause again, at its next expensive refund
            # `paused.journal.dumps()` could be stored here, and resumed by another process after days.
            decisions = {call.id: approve(call) for call in paused.calls}
            start = partial(agent.resume_sync, paused.journal, approve=decisions)


def approve(call: ToolCall) -> bool:
    """Ask a colleague about a call; without a terminal the colleague agrees."""
    print(f"approval needed: {call.name} {call.arguments}")
    return not sys.stdin.isatty() or input("approve? [y/n] ").startswith("y")


def chat(agent: Agent[Customer, str], memory: Memory, customer: Customer) -> None:
    """Answer each line of the terminal, until an empty line or the end of the input."""
    with contextlib.suppress(EOFError):
        while text := input(f"{customer.name}: "):
            print("desk:", ask(agent, memory, customer, text))


def main() -> None:
    """Show four questions of two customers, or chat as a customer."""
    parser = argparse.ArgumentParser(description="Answer customers of the shop.")
    parser.add_argument("--chat", metavar="CUSTOMER", help="start a chat as this customer, such as ada")
    customer_name = parser.parse_args().chat
    database = open_shop()
    with tempfile.TemporaryDirectory() as home, Memory(home, scope=SHOP) as memory:
        store_policies(memory)
        agent = desk_agent(memory, desk_model())
        if customer_name is not None:
            return chat(agent, memory, Customer(customer_name, database))
        ada, bob = Customer("ada", database), Customer("bob", database)
        for customer, text in [
            (ada, "Where is order 17?"),
            (bob, "Where is order 17?"),
            (ada, "How long can I return an order?"),
            (ada, "Please refund 80 EUR for order 18."),
        ]:
            print(f"{customer.name}: {text}")
            print("desk:", ask(agent, memory, customer, text))
        print("status of order 18:", ada.order("18")[2])


if __name__ == "__main__":
    main()
