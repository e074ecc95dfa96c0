"""`AgentReload`: reloads changed agent files while the server runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentkit.agent_files.agent_file_error import AgentFileError
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.errors import AgentDefinitionError
from agentkit.ground.threads import in_thread
from agentkit.server.http_app import Server

_CHECK_SECONDS = 0.5
"""Seconds between two checks of the files."""
_MAX_FILES = 10_000
"""Maximum number of files that are checked per agent."""
_Stamp = dict[str, tuple[int, int, int]]
"""Time of the last change, size and inode by path."""


class AgentReload:
    """Checks the files of agents and reloads changed agents.

    Later runs use the new agent; running runs finish with the agent that they started with. If a file is invalid, the
    previous agent stays in use and the error is reported.

    Args:
        server: The server whose agents are replaced.
        load: Loads the agent of a source again with the same memory; see `SharedMemories`.
        report: Receives the name of a changed agent and the error of its file; None if the agent was reloaded.
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
        self._stamps: dict[str, tuple[tuple[Path, ...], _Stamp]] = {}
        """Files and their stamps at the last load, by the name of the agent."""
        self._retired: list[LoadedAgent] = []
        """Replaced agents that runs may still use."""
        for agent in server.agents:
            if agent.files:
                self._stamps[agent.name] = (agent.files, _stamp(agent.files))
        server.add_background_task(self._watch)

    @property
    def watched(self) -> frozenset[str]:
        """Names of the agents whose files are checked. Agents of modules have no files."""
        return frozenset(self._stamps)

    def close(self) -> None:
        """Close the current and the replaced agents."""
        for agent in (*self._retired, *self._server.agents):
            agent.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for agent in list(self._server.agents):
                if agent.name in self._stamps:
                    await self._reload_if_changed(agent)
            # A replaced agent closes its servers and clients only when the server is idle: a run may still use them.
            if self._retired and not self._server.limits.running and not self._server.runs.live:
                retired, self._retired = self._retired, []
                for agent in retired:
                    await in_thread(agent.close)

    async def _reload_if_changed(self, agent: LoadedAgent) -> None:
        files, before = self._stamps[agent.name]
        now = await in_thread(_stamp, files)
        if now == before:
            return
        try:
            loaded = await in_thread(self._load, agent.source)
            try:
                self._retired.append(self._server.agents.replace(loaded))
            except AgentDefinitionError:
                await in_thread(loaded.close)
                raise
        except Exception as error:
            if isinstance(error, AgentFileError):
                files = tuple(dict.fromkeys((*files, *error.files)))
            message = str(error)
            if not isinstance(error, AgentDefinitionError):
                message = f"{type(error).__name__}: {error}"
            self._report(agent.name, message)
        else:
            files = loaded.files
            self._report(agent.name, None)
        # Stamps from before the load win: a change during the load is found by the next check.
        after = await in_thread(_stamp, files)
        self._stamps[agent.name] = (files, {path: now.get(path, stamp) for path, stamp in after.items()})


def _stamp(paths: Iterable[Path]) -> _Stamp:
    stamps: _Stamp = {}
    for path in paths:
        for file in _files(path):
            try:
                status = file.stat()
            except OSError:
                continue
            stamps[str(file)] = (status.st_mtime_ns, status.st_size, status.st_ino)
            if len(stamps) >= _MAX_FILES:
                return stamps
    return stamps


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)
