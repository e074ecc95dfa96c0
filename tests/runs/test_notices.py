"""Notices about runs for webhooks, which all servers on a database share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from agentkit.server import RunStore


def test_servers_that_start_at_once_register_the_same_webhook(postgres_url: str) -> None:
    url = sa.make_url(postgres_url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url)
    store = RunStore(engine)

    def register(number: int) -> None:
        store.notices.register({"a": ("acme", ["finished"]), "b": (None, ["failed", "waiting"][: 1 + number % 2])})

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(register, range(40))) == [None] * 40
    engine.dispose()
