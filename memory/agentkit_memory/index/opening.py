"""Openers of the index of a space: Qdrant Edge in a folder, tables of a PostgreSQL database, or a Qdrant server.

An opener imports its package when it is called.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from agentkit_memory.checks import expanded, is_address, is_file_name
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.index.vector_index import IndexOpener, VectorIndex

_POSTGRES = ("postgresql://", "postgresql+psycopg://")
"""Starts of the addresses of PostgreSQL databases."""


def index_opener(index: str | os.PathLike[str] | IndexOpener, timeout: float = 5.0) -> IndexOpener:
    """Return the opener of the indexes in a folder or, for an address, on a server; a function is returned unchanged.

    `timeout` is the maximum number of seconds to wait for a connection or a lock of PostgreSQL.

    Raises:
        InvalidArgument: `index` is of another type, or is not a valid name of a folder.
    """
    if isinstance(index, str) and index.lower().startswith(("http://", "https://")):
        return qdrant_indexes(index)
    if isinstance(index, str) and index.startswith(_POSTGRES):
        return postgres_indexes(index, timeout)
    if isinstance(index, str) and is_address(index):
        raise InvalidArgument(
            "index: expected a folder, the address of a Qdrant server such as http://localhost:6333, or of a database "
            "such as postgresql://user@host:port/database, got another address; it is not shown, as it may contain a "
            "password; pass a folder with such a name as ./NAME",
            name="index",
        )
    if isinstance(index, str | os.PathLike):
        return edge_indexes(index)
    if not callable(index):
        raise InvalidArgument(
            f"index: expected a folder, the address of a Qdrant server or of a PostgreSQL database, or a function of a "
            f"space's name and dimensions that opens an index, got {index!r}",
            name="index",
            value=type(index).__name__,
        )
    return index


def edge_indexes(folder: str | os.PathLike[str]) -> IndexOpener:
    """Return an opener that stores every space in a separate subfolder of `folder`, with Qdrant Edge.

    The opener raises StoreUnavailable if the extra `vector` is not installed.

    Raises:
        InvalidArgument: The value is not a valid name of a folder.
    """
    path = expanded(folder)
    if not is_file_name(path):
        raise InvalidArgument(
            f"index: expected a folder, got {str(path)!r} with NUL or an unpaired surrogate; choose another name",
            name="index",
        )

    def open_edge(space: str, dimensions: int) -> VectorIndex:
        from agentkit_memory.index.qdrant_edge import EdgeIndex

        return EdgeIndex(path / quote(space, safe="+ "), dimensions)

    return open_edge


def postgres_indexes(address: str, timeout: float) -> IndexOpener:
    """Return an opener that stores every space in tables of a PostgreSQL database, for many processes.

    The connections are separate from the connections of a store in the same database: a recall that reads the store and
    waits for a connection to the index would otherwise block another recall.

    Args:
        address: Address of the database.
        timeout: Maximum seconds to wait for a connection or a lock.

    Raises:
        InvalidArgument: The address is invalid.
        StoreUnavailable: The extra `postgres` is not installed.
    """
    from agentkit_memory.database.postgres import PostgresServer

    server = PostgresServer(address, timeout)

    def open_postgres(space: str, dimensions: int) -> VectorIndex:
        from agentkit_memory.index.postgres_index import PostgresIndex

        return PostgresIndex(server, space, dimensions)

    return open_postgres


def qdrant_indexes(
    location: str, *, collection: str = "agentkit", api_key: str | None = None, timeout: float = 5.0
) -> IndexOpener:
    """Return an opener that stores every space in a separate collection on a Qdrant server, for many processes.

    The opener raises StoreUnavailable if the extra `vector` is not installed.

    Args:
        location: Address of the server. `:memory:` or a path opens the client's local mode, which is for tests.
        collection: Prefix of the names of the collections. Two databases on one server need different prefixes.
        api_key: Key to send with every request.
        timeout: Maximum seconds of a request.
    """

    def open_qdrant(space: str, dimensions: int) -> VectorIndex:
        from agentkit_memory.index.qdrant_server import QdrantIndex, connect

        return QdrantIndex(connect(location, api_key, timeout), f"{collection}-{quote(space, safe='')}", dimensions)

    return open_qdrant
