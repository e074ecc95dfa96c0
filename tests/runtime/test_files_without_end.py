"""A pipe, a device, or an invalid name instead of a file is refused without a wait."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit import Journal
from agentkit.agent_files import AgentFileError, load_agent
from agentkit.cli.commands.map_command import _inputs
from agentkit.errors import AgentDefinitionError, JournalError
from agentkit.memory import InvalidArgument, Memory, StoreError
from agentkit.model_evaluation.answer_file import AnswerFile
from agentkit.prompts import Image, MediaError, PromptError, Template, TemplateError, TokenizersCounter
from agentkit.prompts.chat_templates import ChatTemplateConfig, ChatTemplateError, JinjaChatTemplate
from agentkit.prompts.evaluation import InContextError, load_config, load_rows
from agentkit.server import Access, add_token
from agentkit.server.server_errors import AccessFileError
from agentkit.testing import ReplayModel
from agentkit_prompts.chat_templates.template_finder import find_chat_template
from tests.cases import collected

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")


def restored(path: Path) -> Any:
    with Memory(path.parent / "store") as memory:
        return memory.admin.restore(path)


Door = tuple[str, Callable[[Path], Any], tuple[type[Exception], ...]]
DOORS: list[Door] = [
    ("x.jsonl", load_rows, (InContextError,)),
    ("x.json", load_rows, (InContextError,)),
    ("inputs.jsonl", _inputs, (OSError,)),
    ("x.csv", load_rows, (InContextError,)),
    ("x.yaml", load_config, (InContextError,)),
    ("x.py", load_config, (InContextError,)),
    ("agent.yaml", load_agent, (AgentFileError, AgentDefinitionError)),
    ("prompt.txt", Template.from_file, (TemplateError,)),
    ("chat_template.jinja", JinjaChatTemplate.from_file, (ChatTemplateError,)),
    ("tokenizer_config.json", JinjaChatTemplate.from_file, (ChatTemplateError,)),
    ("own.json", lambda path: find_chat_template(str(path), "m"), (ChatTemplateError,)),
    ("own.json", ChatTemplateConfig.from_json, (ChatTemplateError,)),
    ("tokenizer.json", TokenizersCounter, (PromptError,)),
    ("access.yaml", Access, (AccessFileError,)),
    ("access.yaml", lambda path: add_token(path, "n", "t"), (AccessFileError,)),
    ("journal.jsonl", Journal.read, (OSError, JournalError)),
    ("recording.jsonl", ReplayModel, (OSError,)),
    ("answers.jsonl", lambda path: AnswerFile(path, {}), (InContextError,)),
    ("export.jsonl", restored, (StoreError, InvalidArgument)),
    ("a.png", lambda path: Image(path).read(), (MediaError,)),
    ("a.png", lambda path: Image(path).id, (MediaError,)),
]


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


KINDS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "noise": lambda path: path.symlink_to("/dev/urandom"),
    "itself": lambda path: path.symlink_to(path),
    "folder": lambda path: path.mkdir(),
    "socket": listening,
}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door[0])
def test_a_path_that_is_not_a_regular_file_is_refused_without_a_wait(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, opened, errors = door
    for kind, make in KINDS.items():
        folder = tmp_path / kind
        folder.mkdir()
        monkeypatch.chdir(folder)  # the address of a socket is short
        make(Path(name))
        with pytest.raises(errors):
            opened(folder / name)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    failures: list[str] = []
    for begin in ["a\0b", "\ud800", "a" * 5_000]:
        for door in DOORS:
            with collected(failures, begin, door):
                name, opened, errors = door
                with pytest.raises(errors):
                    opened(tmp_path / (begin + name))
    assert failures == []
