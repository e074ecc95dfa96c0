"""Execution of the scripts of skills in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import decode_source

from agentkit_prompts.names import nearest
from agentkit_prompts.system.regular_files import read_regular
from agentkit_tools.errors import ToolFailure
from agentkit_tools.sandboxes.sandbox import Sandbox, SandboxJob, checked_result, refuse_calls, result_text
from agentkit_tools.skills.skill_files import SkillFiles

_MAX_BYTES = 5_000_000
"""Maximum size of the files of a skill whose script is executed."""


def scripts_of(files: SkillFiles) -> list[str]:
    """Return the names of the Python scripts of a skill."""
    return [name for name in files.names if name.endswith(".py")]


async def run_script(files: SkillFiles, script: str, arguments: Sequence[str], sandbox: Sandbox) -> str:
    """Execute a script in a sandbox, with the files of its skill, and return its output.

    Raises:
        ToolFailure: The skill has no such script, its files cannot be read, or the script failed.
        SandboxError: The sandbox cannot execute the script.
    """
    names = scripts_of(files)
    if script not in names:
        raise ToolFailure(f"unknown script {script!r:.200} of the skill{nearest(script, names)}")
    contents = _contents(files)
    try:
        code = decode_source(contents[script])
    except (UnicodeDecodeError, SyntaxError):
        raise ToolFailure(f"script {script!r:.200} of the skill is not text") from None
    job = SandboxJob(code, files=contents, arguments=tuple(arguments), file=script)
    result = checked_result(sandbox, await sandbox.run(job, refuse_calls))
    # Python shows no value of a script.
    return result_text(replace(result, value=""))


def _contents(files: SkillFiles) -> dict[str, bytes]:
    """Return the files of a skill, except its instructions.

    Raises:
        ToolFailure: A file cannot be read, or the files are too large.
    """
    contents: dict[str, bytes] = {}
    rest = _MAX_BYTES
    for name in files.names:
        try:
            contents[name] = read_regular(files.folder / name, rest, folder=files.folder)
        except OSError as error:
            problem = error.strerror or str(error)
            raise ToolFailure(f"file {name!r:.200} of the skill cannot be read: {problem}") from None
        rest -= len(contents[name])
    return contents
