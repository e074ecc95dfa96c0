"""`AgentReload`: takes agent files that were changed while the server runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentkit.agent_files.agent_loading import AgentFileError
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.errors import AgentDefinitionError
from agentkit.ground.threads import in_thread
from agentkit.server.http_app import Server

__all__ = ["AgentReload"]

_LOOK_SECONDS = 0.5
"""Between two looks at the files."""
_MAX_FILES = 10_000
_Stamp = dict[str, tuple[int, int, int]]


class AgentReload:
    """Looks at the files of agents, and loads those that were changed.

    What begins from then on is done by the new agent; what goes on ends with the one it began with. A file that cannot
    be used changes nothing: the agent before it stays, and what is wrong is reported.

    Args:
        server: The server; its agents are replaced.
        load: Loads the agent of a source again, with the memory it has; see `SharedMemories`.
        report: Called with what happened: the name of an agent, and what is wrong with its file; None where it was
            loaded.
    """

    def __init__(
        self,
        server: Server,
        load: Callable[[str], LoadedAgent],
        report: Callable[[str, str | None], object],
    ) -> None:
        self._server = server
        self._load = load
        self._report = report
        self._seen: dict[str, tuple[tuple[Path, ...], _Stamp]] = {}
        """Per agent: the files that are looked at, and how they were when they were read last."""
        self._retired: list[LoadedAgent] = []
        for one in server.agents:
            if one.files:
                self._seen[one.name] = (one.files, _stamp(one.files))
        server.during(self._watch)

    @property
    def watched(self) -> frozenset[str]:
        """Names of the agents whose files are looked at: those of modules are not."""
        return frozenset(self._seen)

    def close(self) -> None:
        """Close what the agents of now and before opened."""
        for one in (*self._retired, *self._server.agents):
            one.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for one in list(self._server.agents):
                if one.name in self._seen:
                    await self._look(one)
            if self._retired and not self._server.limits.running and not self._server.runs.live:
                retired, self._retired = self._retired, []
                for one in retired:
                    await in_thread(one.close)

    async def _look(self, one: LoadedAgent) -> None:
        files, before = self._seen[one.name]
        now = await in_thread(_stamp, files)
        if now == before:
            return
        try:
            loaded = await in_thread(self._load, one.source)
            try:
                self._retired.append(self._server.agents.replace(loaded))
            except AgentDefinitionError:
                await in_thread(loaded.close)
                raise
        except Exception as error:
            if isinstance(error, AgentFileError):
                files = tuple(dict.fromkeys((*files, *error.files)))
            text = str(error) if isinstance(error, AgentDefinitionError) else f"{type(error).__name__}: {error}"
            self._report(one.name, text)
        else:
            files = loaded.files
            self._report(one.name, None)
        fresh = await in_thread(_stamp, files)
        self._seen[one.name] = (files, {path: now.get(path, stamp) for path, stamp in fresh.items()})


def _stamp(paths: Iterable[Path]) -> _Stamp:
    """Return how files are: when they were written, how long they are, and which they are."""
    found: _Stamp = {}
    for path in paths:
        for file in _files(path):
            try:
                info = file.stat()
            except OSError:
                continue
            found[str(file)] = (info.st_mtime_ns, info.st_size, info.st_ino)
            if len(found) >= _MAX_FILES:
                return found
    return found


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)
