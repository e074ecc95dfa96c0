"""Orders of a small shop, in SQLite, and the tools that show them to a customer.

Each tool receives the shop and the customer in its `ToolContext`. The model sees neither, so that no text of a customer
or of a document can choose another customer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentkit import ToolContext, tool
from agentkit.tools import ToolFailure

ORDERS = [
    ("17", "ada", "kettle", 39, "delivered"),
    ("18", "ada", "teapot", 80, "on its way"),
    ("21", "bob", "cups", 24, "waiting for payment"),
]
"""Rows of the table of orders: number, customer, goods, price in EUR, status."""
APPROVAL_ABOVE = 50
"""Amount in EUR above which a refund needs the approval of a person."""


def open_shop(path: str = ":memory:") -> sqlite3.Connection:
    """Open the database of the shop, with a few orders in it."""
    # Sync tools run in threads. SQLite serialises their statements.
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    database.execute("create table if not exists orders (number primary key, customer, goods, price int, status)")
    database.execute("create table if not exists payments (key primary key, number, amount int)")
    database.executemany("insert or ignore into orders values (?, ?, ?, ?, ?)", ORDERS)
    return database


@dataclass(frozen=True)
class Customer:
    """The customer of a run, and the database in which the tools look."""

    name: str
    database: sqlite3.Connection

    def order(self, number: str) -> tuple[str, int, str]:
        """Return goods, price and status of an order of this customer.

        Raises:
            ToolFailure: No order of this customer has the number; the model can correct its call.
        """
        row = self.database.execute(
            "select goods, price, status from orders where number = ? and customer = ?", (number, self.name)
        ).fetchone()
        if row is None:
            raise ToolFailure(f"{self.name} has no order {number}; my_orders lists the orders")
        return row


@tool
def my_orders(context: ToolContext[Customer]) -> list[dict[str, str]]:
    """List the orders of the customer."""
    rows = context.deps.database.execute(
        "select number, goods, status from orders where customer = ? order by number", (context.deps.name,)
    )
    return [{"number": number, "goods": goods, "status": status} for number, goods, status in rows]


@tool
def order_status(number: str, context: ToolContext[Customer]) -> str:
    """Return the status of an order.

    Args:
        number: Number of the order.
        context: Context of the run, which the model does not see.
    """
    goods, _, status = context.deps.order(number)
    return f"order {number} ({goods}): {status}"


def is_expensive(arguments: Mapping[str, Any], _context: ToolContext[Customer]) -> bool:
    """True if a person must approve a refund."""
    return arguments["amount"] > APPROVAL_ABOVE


@tool(approval=is_expensive, sequential=True)
def refund(number: str, amount: int, context: ToolContext[Customer]) -> str:
    """Pay money back for an order.

    Args:
        number: Number of the order.
        amount: Amount in EUR, at most the price of the order.
        context: Context of the run, which the model does not see.
    """
    goods, price, _ = context.deps.order(number)
    database, key = context.deps.database, context.idempotency_key
    # A call that is repeated after a crash has the same key: the money is paid once.
    (paid,) = database.execute(
        "select coalesce(sum(amount), 0) from payments where number = ? and key <> ?", (number, key)
    ).fetchone()
    if not 0 < amount <= price - paid:
        raise ToolFailure(f"at most {price - paid} EUR of order {number} can be refunded")
    database.execute("insert or ignore into payments values (?, ?, ?)", (key, number, amount))
    database.execute("update orders set status = 'refunded' where number = ?", (number,))
    return f"refunded {amount} EUR for order {number} ({goods})"
