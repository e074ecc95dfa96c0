"""Files of skills: `SKILL.md` with its front matter, and the other files in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from agentkit_prompts.context.skill import Skill
from agentkit_prompts.errors import PromptFilesError, TemplateError, brief
from agentkit_prompts.names import similar
from agentkit_prompts.prompt_files.front_matter_text import Fault, FrontKeys, errors_of, read_keys, split_front_matter
from agentkit_prompts.system.regular_files import is_folder, read_regular_text

FILE = "SKILL.md"
_MAX_BYTES = 200_000
"""Maximum size of `SKILL.md`: its text becomes part of each prompt."""
_MAX_SKILLS = 5_000
_MAX_FILES = 2_000
"""Maximum other files of a skill; further files are ignored."""
_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_EXPECTED = {
    "name": "at most 64 lower-case letters, digits and single hyphens between them",
    "description": "text of 1 to 1,024 characters",
}


def _one_line(value: object) -> object:
    if isinstance(value, str):
        return " ".join(value.split())
    return value


class _FrontMatter(BaseModel):
    """Keys of a `SKILL.md` that are read. Other keys, such as `license`, are for people and other programs."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: Annotated[str, StringConstraints(pattern=_NAME, max_length=64)]
    description: Annotated[str, BeforeValidator(_one_line), StringConstraints(min_length=1, max_length=1024)]


@dataclass(frozen=True, slots=True)
class SkillFiles:
    """A skill and the names of its other files."""

    skill: Skill
    """The skill with its instructions."""
    folder: Path
    names: tuple[str, ...]
    """Paths of the other files, relative to the folder of the skill, with `/` between the names."""


def read_skills(folder: Path, *, is_trusted: bool) -> dict[str, SkillFiles]:
    """Return the skills in the subfolders of a folder, by name.

    Raises:
        PromptFilesError: The folder has no skill, or skills are invalid. The error lists all invalid skills.
    """
    label = folder.as_posix()
    if not is_folder(folder):
        raise PromptFilesError([TemplateError("expected a folder with skills", file=label)])
    root = Path(os.path.realpath(folder))
    problems: list[TemplateError] = []
    skills: dict[str, SkillFiles] = {}
    try:
        paths = _skill_folders(root)
    except OSError as error:
        raise PromptFilesError([TemplateError(f"cannot be read: {error.strerror}", file=label)]) from error
    for path in paths:
        file = f"{label}/{path.name}/{FILE}"
        files = _read_skill(path, root, file, problems, is_trusted=is_trusted)
        if files is not None:
            skills[files.skill.name] = files
    if len(skills) > _MAX_SKILLS:
        problems.append(TemplateError(f"{len(skills):,} skills; at most {_MAX_SKILLS:,} are read", file=label))
    if not skills and not problems:
        advice = f"expected subfolders with a file {FILE}, such as {label}/refunds/{FILE}"
        if (root / FILE).is_file():
            advice = f"{FILE} is in the folder itself: pass the folder above it"
        problems.append(TemplateError(advice, file=label))
    if problems:
        raise PromptFilesError(problems)
    return skills


def _skill_folders(root: Path) -> list[Path]:
    """Return the subfolders with a `SKILL.md`, sorted by name. Names that start with a dot are hidden."""
    paths = [path for path in root.iterdir() if not path.name.startswith(".") and is_folder(path)]
    return sorted(path for path in paths if os.path.lexists(path / FILE))


def _read_skill(
    path: Path, root: Path, file: str, problems: list[TemplateError], *, is_trusted: bool
) -> SkillFiles | None:
    """Read one skill; None, with its problems, if it is invalid."""
    try:
        text = read_regular_text(path / FILE, _MAX_BYTES, folder=root)
    except UnicodeDecodeError:
        problems.append(TemplateError("it is not UTF-8 text", file=file))
        return None
    except OSError as error:
        problems.append(TemplateError(f"cannot be read: {error.strerror or error}", file=file))
        return None
    faults: list[Fault] = []
    parts = split_front_matter(text, faults)
    if parts is None:
        faults = faults or [Fault(1, None, "expected front matter between two lines of ---: name and description")]
        problems += errors_of(file, faults)
        return None
    front = _front_matter(parts.front, path.name, faults)
    if front is None:
        problems += errors_of(file, faults)
        return None
    trust: Any = "untrusted"
    if is_trusted:
        trust = "trusted"
    skill = Skill(front.name, front.description, parts.body.strip(), file, trust)
    return SkillFiles(skill, path, tuple(_other_files(path)))


def _front_matter(text: str, folder: str, faults: list[Fault]) -> _FrontMatter | None:
    """Return the keys of the front matter; None, with their faults, if they are invalid."""
    keys = read_keys(text, faults)
    if faults:
        return None
    try:
        front = _FrontMatter.model_validate(keys.values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            faults.append(_fault(str(detail["loc"][0]), keys))
        return None
    if front.name != folder:
        reason = f"name: expected {folder!r:.80}, the name of the folder, got {front.name!r:.80}"
        faults.append(Fault(keys.lines["name"], "name", reason))
        return None
    return front


def _fault(key: str, keys: FrontKeys) -> Fault:
    """Return the fault of a key that is missing or has an invalid value."""
    if key in keys.values:
        reason = f"{key}: expected {_EXPECTED[key]}, got {brief(keys.values[key], 60)}"
        return Fault(keys.lines[key], key, reason)
    reason = f"{key}: missing in the front matter"
    close = similar(key, [name for name in keys.values if name not in _KEYS])
    if close is not None:
        reason = f"{key}: missing; the front matter has {close!r:.60}"
    return Fault(1, key, reason)


def _other_files(folder: Path) -> Iterator[str]:
    """Yield the paths of regular files below the folder of a skill, without links and hidden names."""
    count = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or path == folder / FILE or path.is_symlink():
                continue
            yield path.relative_to(folder).as_posix()
            count += 1
            if count == _MAX_FILES:
                return
