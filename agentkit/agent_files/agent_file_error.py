"""`AgentFileError`: all problems of an agent file, or of the model of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkit.agent_files.yaml_lines import Problem, listed
from agentkit.errors import AgentDefinitionError


class AgentFileError(AgentDefinitionError):
    """Invalid agent file, or an invalid model for an agent.

    Attributes:
        problems: All problems, each with its file, line and key.
        path: File or argument of the first problem.
        line: Line of the first problem; None without a line.
        name: Key of the first problem, such as `tools[0].agent`; None without a key.
        files: The files and folders that were read.
    """

    def __init__(self, problems: list[Problem], files: Sequence[Path] = ()) -> None:
        first = problems[0]
        super().__init__(listed(problems), path=first.file, line=first.line, name=first.key or None)
        self.problems = tuple(problems)
        self.files = tuple(files)
