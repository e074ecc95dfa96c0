"""`SkillFolder`: skills of a folder as tools that load and find them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.context.skill import Skill
from agentkit_prompts.errors import ContextError, brief, shortened
from agentkit_prompts.names import nearest
from agentkit_prompts.ranking.bm25 import BM25
from agentkit_prompts.system.regular_files import read_regular_text
from agentkit_prompts.tokens.counter import ESTIMATE
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.leaves import LoadedSkillsPrompt, SkillsPrompt
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_tools.calling.tool_policy import check_counts
from agentkit_tools.errors import ToolDefinitionError, ToolFailure
from agentkit_tools.skills.skill_files import SkillFiles, read_skills
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.context_toolset import ContextToolset

if TYPE_CHECKING:
    from agentkit_tools.sandboxes.sandbox import Sandbox

LOAD_TOOL, FIND_TOOL, SCRIPT_TOOL = "load_skill", "find_skills", "run_skill_script"
_SCRIPT_TIMEOUT = 600.0
"""Seconds until a script is cancelled; a sandbox has a shorter limit."""
_DESCRIPTION_CHARS = (1024, 300, 200, 120, 80, 40, 0)
"""Lengths to which descriptions are cut, until the list is short enough."""
_HEADING_TOKENS = 40
"""Tokens of the text before the list in a prompt."""
_MAX_FILE_BYTES = 80_000
"""Maximum size of another file, below the default maximum of a tool result."""
_MAX_FOUND = 10
_MAX_LISTED = 200
"""Maximum other files of a loaded skill that are listed."""


class SkillFolder(ContextToolset):
    """The skills in the subfolders of a folder, in the published `SKILL.md` format.

    Pass the folder to an agent as one of its tools. The prompt then lists names and descriptions (`SkillsPrompt`). The
    model loads a skill with the tool `load_skill`, and the next prompts of the conversation contain its instructions
    (`LoadedSkillsPrompt`), also after compaction. With a file name, the tool returns another file of the skill. If
    the list is too long for `list_tokens`, descriptions are cut, and the tool `find_skills` searches all skills.

    The files are read once. Links to files outside of the folder are refused. With a sandbox, the tool
    `run_skill_script` executes Python scripts of a loaded skill with the files of the skill; otherwise, no script runs.

    Args:
        folder: Folder whose subfolders have a file `SKILL.md`.
        trusted: True if you wrote the skills. By default their text is untrusted, as the text of documents.
        sandbox: Executes scripts, such as `ProcessSandbox()`; None without scripts.
        list_tokens: Maximum tokens, estimated, of the list in the prompt.

    Raises:
        PromptFilesError: The folder has no skill, or skills are invalid. The error lists all invalid skills.
        ToolDefinitionError: `folder` is not a path, `trusted` is not True or False, `sandbox` is no sandbox, or
            `list_tokens` is below 100.
    """

    __slots__ = ("__dict__", "_files", "_sandbox", "shown")

    noun: ClassVar[str] = "skills"
    shows: ClassVar[frozenset[str]] = frozenset({"skills", "loaded_skills"})
    advice: ClassVar[str] = (
        "add SkillsPrompt() and LoadedSkillsPrompt(), such as Layers([..., SkillsPrompt()], "
        "before_input=LoadedSkillsPrompt()); in a folder of prompts, files with `kind: skills` and "
        "`kind: loaded_skills`"
    )
    shown: tuple[Skill, ...]
    """The skills of the list in the prompt, in the order of their names, without their instructions."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        trusted: bool = False,
        sandbox: Sandbox | None = None,
        list_tokens: int = 1_500,
    ) -> None:
        # An empty text, such as an unset variable, would be the working folder.
        if not isinstance(folder, str | os.PathLike) or folder == "":
            raise ToolDefinitionError(f"SkillFolder: expected the path of a folder, got {brief(folder)}")
        if not isinstance(trusted, bool):
            raise ToolDefinitionError(
                f"SkillFolder: trusted: expected True or False, got {trusted!r:.40}", names=["trusted"]
            )
        check_counts("SkillFolder", list_tokens=(list_tokens, 100))
        if sandbox is not None and (isinstance(sandbox, type) or not callable(getattr(sandbox, "run", None))):
            raise ToolDefinitionError(
                f"SkillFolder: sandbox: expected a sandbox, such as ProcessSandbox(), got {sandbox!r:.60}",
                names=["sandbox"],
            )
        self._sandbox = sandbox
        self._files = read_skills(Path(folder), is_trusted=trusted)
        skills = [files.skill for files in self._files.values()]
        self.shown = _list_within(skills, list_tokens - _HEADING_TOKENS)
        tools: list[Tool] = [Tool(self._load, name=LOAD_TOOL)]
        if self.shown != tuple([replace(skill, text="") for skill in skills]):
            description = f"Find skills by their purpose, among {len(skills):,}. Load a skill to use it."
            tools.append(Tool(self._find, name=FIND_TOOL, description=description))
        if sandbox is not None:
            tools.append(Tool(self._run, name=SCRIPT_TOOL, timeout=_SCRIPT_TIMEOUT))
        super().__init__(tools)

    @classmethod
    def prompts(cls) -> Mapping[Place, BasePrompt]:
        """Return the prompts of the list and of the loaded skills."""
        return {"system": SkillsPrompt(), "before_input": LoadedSkillsPrompt()}

    @property
    def texts(self) -> dict[str, str]:
        """Description and instructions of each skill, by `skills.` and its name."""
        skills = [files.skill for files in self._files.values()]
        return {f"skills.{skill.name}": f"{skill.description}\n\n{skill.text}" for skill in skills}

    @property
    def version(self) -> str:
        """Hash of the names, descriptions and instructions of all skills, 16 hex digits."""
        return blake2b(json.dumps(self.texts).encode(), digest_size=8).hexdigest()

    def add_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the skills, and with the instructions of the skills that its messages loaded.

        Skills that the context has as loaded stay loaded: compaction may have removed their messages.

        Raises:
            ContextError: The context has other skills.
        """
        if ctx.skills and [skill.name for skill in ctx.skills] != [skill.name for skill in self.shown]:
            raise ContextError("PromptContext", [("skills", "the skills of the agent would replace them: remove them")])
        names = dict.fromkeys([skill.name for skill in ctx.loaded_skills])
        for message in (*ctx.conversation, *ctx.intermediate):
            names.update(dict.fromkeys(_loaded_names(message)))
        loaded = [self._files[name].skill for name in names if name in self._files]
        if ctx.skills and len(loaded) == len(ctx.loaded_skills):
            return ctx
        return ctx.evolve(skills=self.shown, loaded_skills=loaded)

    async def _load(
        self,
        name: Annotated[str, "Name of the skill."],
        file: Annotated[str, "Path of another file of the skill; empty for its instructions."] = "",
    ) -> dict[str, object]:
        """Load the instructions of a skill into the prompt, or return another file of the skill."""
        files = self._skill(name)
        # Both results are objects: the text of a file cannot be the result of loading another skill.
        if file:
            return {"file": file, "text": _text_of(files, file)}
        note = "The instructions of the skill are in the prompt now."
        hidden = len(files.names) - _MAX_LISTED
        if hidden > 0:
            note += f" {hidden:,} further files are not listed here."
        return {"loaded": name, "files": list(files.names[:_MAX_LISTED]), "note": note}

    async def _run(
        self,
        context: ToolContext[Any],
        name: Annotated[str, "Name of the skill."],
        script: Annotated[str, "Path of the script in the skill, such as scripts/fill.py."],
        arguments: Annotated[list[str], "Arguments of the script."] = [],  # noqa: B006
    ) -> str:
        """Run a Python script of a loaded skill in a sandbox, with the files of the skill, and return its output."""
        from agentkit_tools.skills.skill_scripts import run_script

        assert self._sandbox is not None
        files = self._skill(name)
        if context.run is not None and name not in context.run.loaded_skills:
            raise ToolFailure(
                f"skill {name!r} is not loaded: call {LOAD_TOOL} with its name, then read how the script is used"
            )
        return await run_script(files, script, arguments, self._sandbox)

    def _skill(self, name: str) -> SkillFiles:
        files = self._files.get(name)
        if files is None:
            raise ToolFailure(f"unknown skill {name!r:.80}{nearest(name, self._files)}")
        return files

    async def _find(self, query: Annotated[str, "The task, in a few words."]) -> dict[str, object]:
        scores = self._index.scores(query)
        skills = [files.skill for files in self._files.values()]
        ranked = sorted(range(len(skills)), key=lambda position: -scores[position])
        matches = [skills[position] for position in ranked[:_MAX_FOUND] if scores[position] > 0]
        if not matches:
            return {"skills": [], "note": "no skill has these words: use other words"}
        return {"skills": [{"name": skill.name, "description": skill.description} for skill in matches]}

    @cached_property
    def _index(self) -> BM25:
        return BM25([f"{item.skill.name} {item.skill.description}" for item in self._files.values()])


def _text_of(files: SkillFiles, name: str) -> str:
    """Return the text of another file of a skill.

    Raises:
        ToolFailure: The skill has no such file, or the file cannot be read as text.
    """
    if name not in files.names:
        raise ToolFailure(f"unknown file {name!r:.200} of the skill{nearest(name, files.names)}")
    try:
        return read_regular_text(files.folder / name, _MAX_FILE_BYTES, folder=files.folder)
    except UnicodeDecodeError:
        problem = "it is not text"
    except OSError as error:
        problem = error.strerror or str(error)
    raise ToolFailure(f"file {name!r:.200} of the skill cannot be read: {problem}")


def _loaded_names(message: Message) -> Iterator[str]:
    """Yield the name of the loaded skill if a message is the result of `load_skill`."""
    if message.role != "tool" or message.name != LOAD_TOOL:
        return
    try:
        result = json.loads(message.text)
    except (ValueError, RecursionError):
        return  # an error, or a result that was cut
    if isinstance(result, dict) and isinstance(result.get("loaded"), str):
        yield result["loaded"]


def _list_within(skills: Sequence[Skill], max_tokens: int) -> tuple[Skill, ...]:
    """Return the skills of a list of at most `max_tokens`: with shorter descriptions, or without the last skills."""
    listed: list[Skill] = []
    for length in _DESCRIPTION_CHARS:
        listed = [replace(skill, text="", description=shortened(skill.description, length)) for skill in skills]
        if sum(map(_tokens, listed)) <= max_tokens:
            return tuple(listed)
    used = 0
    for count, skill in enumerate(listed):
        used += _tokens(skill)
        if used > max_tokens:
            return tuple(listed[:count])
    return tuple(listed)


def _tokens(skill: Skill) -> int:
    """Return the estimated tokens of a skill in the list of `SkillsPrompt`."""
    return ESTIMATE.count(f"\n- {skill.name}: {skill.description}")
