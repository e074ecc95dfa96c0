"""Contents of agent files, and the errors of invalid files: all at once and with lines."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentkit import CompletionModel, Message, ScriptedModel, ToolCall
from agentkit.agent_files import AgentFileError, SharedMemories, load_agent
from agentkit.agent_files.agent_file import agent_file_schema
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Memory, Scope
from agentkit.prompts.chat_templates import ControlTokenError
from tests.paths import ROOT
from tests.raising import raises
from tests.servers import completes, serve

TOOLS = '''
from pydantic import BaseModel

class Price(BaseModel):
    francs: int

def price(book: str) -> str:
    """Tell the price."""
    return f"{book} costs 30"

NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "system.prompt.j2").write_text("You sell books.")
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def written(folder: Path, text: str, name: str = "agent.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def problems(path: Path) -> list[str]:
    with pytest.raises(AgentFileError) as caught:
        load_agent(path)
    assert all(one.file == path.as_posix() for one in caught.value.problems)
    return [f"{one.line}: {one.message}" for one in caught.value.problems]


def test_a_file_is_an_agent_with_its_prompts_tools_memory_and_limits(folder: Path) -> None:
    (folder / "prompts" / "found.prompt.j2").write_text("---\nrole: before_input\nkind: memo\n---\n")
    path = written(
        folder,
        """\
name: shop
description: Sells books.
model: {name: offline, settings: {temperature: 0}}
layers: prompts
instructions: Be brief.
tools: ["./tools.py:price"]
memory: {home: store}
recall: {limit: 3, roles: [user]}
compaction: {kind: trim, tokens: 500}
limits: {steps: 3, tokens: 9000, on_limit: return}
budget: {limit: 4000, reserve: 500}
""",
    )
    asks = Message("assistant", tool_calls=(ToolCall("c", "price", '{"book": "Emma"}'),))
    loaded = load_agent(path, model=ScriptedModel([asks, "Thirty."]))
    try:
        agent = loaded.agent
        assert (loaded.name, loaded.description, agent.definition.limits.steps, agent.definition.recall.limit) == (
            "shop",
            "Sells books.",
            3,
            3,
        )
        result = agent.run_sync("How much is Emma?")
        assert result.output == "Thirty." and result.messages[2].text == "Emma costs 30"
        assert result.composition.system.text == "You sell books.\n\nBe brief."
        assert result.composition.budget is not None and result.composition.budget.tokens == 3500
        assert (folder / "store" / "memory.db").exists()
    finally:
        loaded.close()


def test_the_version_changes_with_the_content(folder: Path) -> None:
    path = written(folder, "model: offline\nlayers: prompts\n")
    first = load_agent(path).version
    assert load_agent(path).version == first and len(first) == 16
    (folder / "prompts" / "system.prompt.j2").write_text("You buy books.")
    assert load_agent(path).version != first


def test_each_problem_is_reported_with_its_line(folder: Path) -> None:
    path = written(
        folder,
        """\
name: my shop
model: {name: offline, setings: {}}
instruction: Be brief.
tools:
  - ./tools.py
  - mcp: http://localhost
    heders: {}
  - agent: other.yaml
    name: other
limits:
  steps: 0
  tokens: many
budget: 0
memory: false
""",
    )
    found = problems(path)
    assert [one.split(":")[0] for one in found] == ["1", "2", "3", "5", "7", "8", "11", "12", "13", "14"]
    text = "\n".join(found)
    for what in (
        "did you mean 'settings'",
        "did you mean 'instructions'",
        "did you mean 'headers'",
        "description: is missing",
    ):
        assert what in text


def test_a_tool_with_a_mistyped_kind_is_checked_as_the_kind_with_the_closest_name(folder: Path) -> None:
    path = written(
        folder,
        """\
model: offline
tools:
  - mpc: http://localhost
  - {url: http://localhost, headers: {}}
  - {agnt: other.yaml, name: other, description: Another one.}
""",
    )
    found = problems(path)
    assert [one.split(":")[0] for one in found] == ["3", "3", "4", "4", "5", "5"]
    for at, what in enumerate(("mcp: is missing", "did you mean 'mcp'", "mcp: is missing", "url: unknown key")):
        assert what in found[at]
    assert "agent: is missing" in found[4] and "did you mean 'agent'" in found[5]


def test_each_part_that_cannot_be_built_is_reported_with_its_line(folder: Path) -> None:
    (folder / "prompts" / "broken.prompt.j2").write_text("{{ a")
    path = written(
        folder,
        """\
model: opnai:gpt-5
layers: prompts
tools:
  - ./tools.py:pric
  - ./tools.py:NUMBER
  - nowhere.to.be:found
  - mcp: [server]
    env: {KEY: "${AGENTKIT_NOT_SET}"}
  - mcp: http://localhost
    env: {A: b}
compaction: {kind: trim, model: offline}
output: ./tools.py:Nothing
""",
    )
    text = "\n".join(problems(path))
    for line, what in (
        (1, "did you mean 'openai'"),
        (2, "broken.prompt.j2"),
        (4, "did you mean 'price'"),
        (5, "expected a function, a tool or a toolset"),
        (6, "unknown module 'nowhere.to.be'"),
        (7, "not set in the environment: AGENTKIT_NOT_SET"),
        (9, "env is only valid for a command"),
        (11, "kind: summarise"),
        (12, "has no 'Nothing'"),
    ):
        assert any(one.startswith(f"{line}: ") and what in one for one in text.splitlines() if what in one), (
            line,
            what,
        )


def test_an_agent_that_is_a_tool_of_itself_is_refused(folder: Path) -> None:
    entry = "tools:\n  - {{agent: {}, name: other, description: Helps.}}\nmodel: offline\n"
    written(folder, entry.format("b.yaml"), "a.yaml")
    written(folder, entry.format("./a.yaml"), "b.yaml")
    with raises(AgentFileError, path=str(folder / "b.yaml"), line=2, name="tools[0]"):
        load_agent(folder / "a.yaml")
    (folder / "link.yaml").symlink_to(folder / "a.yaml")
    written(folder, entry.format("link.yaml"), "b.yaml")
    with raises(AgentFileError, path=str(folder / "b.yaml"), line=2, name="tools[0]"):
        load_agent(folder / "a.yaml")
    python = (
        "from agentkit.agent_files.agent_loading import load_agent\ndef make():\n    return load_agent({!r}).agent\n"
    )
    (folder / "loop.py").write_text(python.format(str(folder / "a.yaml")))
    written(folder, entry.format("./loop.py:make"), "b.yaml")
    with raises(AgentFileError, path=str(folder / "b.yaml"), line=2, name="tools[0]") as caught:
        load_agent(folder / "a.yaml")
    assert len(str(caught.value)) < 1000


def test_an_agent_of_another_file_is_a_tool(folder: Path) -> None:
    written(folder, "model: offline\n", "helper.yaml")
    path = written(folder, "model: offline\ntools:\n  - {agent: helper.yaml, name: help, description: Helps.}\n")
    assert [*load_agent(path).agent.tools] == ["help"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("- a\n", "expected keys with values"),
        ("model: offline\nmodel: x\n", "2: duplicate key 'model'"),
        ("model: &a offline\nname: *a\n", "aliases are not allowed"),
        ("a: {\n", "not YAML"),
        ("model: !!python/object/apply:os.system [ls]\n", "not YAML"),
        ("model: offline\nname: \x00\n", "2: not YAML"),
        ("[" * 200, "not YAML"),
        ("model: offline\ninstructions: " + "x" * (1 << 20), "bytes that are read"),
        ("yes: no\nmodel: offline", "unknown key"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_without_a_valid_agent_is_reported_with_its_problem(folder: Path, text: str, what: str) -> None:
    assert what in "\n".join(problems(written(folder, text)))


def test_an_unreadable_file_is_reported_with_its_reason(folder: Path) -> None:
    assert "the file does not exist; check the path" in problems(folder / "none.yaml")[0]
    assert "it is a folder" in problems(folder / "prompts")[0]
    (folder / "latin.yaml").write_bytes(b"model: offline\nname: caf\xe9\n")
    assert problems(folder / "latin.yaml") == ["2: it is not UTF-8 text"]
    (folder / "loop.yaml").symlink_to("loop.yaml")
    assert "symbolic links" in problems(folder / "loop.yaml")[0]
    os.mkfifo(folder / "pipe.yaml")
    assert "it is not a regular file" in problems(folder / "pipe.yaml")[0]


def test_an_opened_memory_is_closed_if_another_part_is_invalid(folder: Path) -> None:
    path = written(folder, "model: offline\nmemory: true\ntools: [./tools.py:price, ./tools.py:price]\n")
    with raises(AgentFileError, path=str(path), line=1):
        load_agent(path)
    with Memory(folder / ".agentkit", scope=Scope("local")) as memory:
        assert memory.ingest([path]).added  # the index has one process, and one opening, at a time


def test_a_folder_replaces_the_folder_of_the_memory_but_no_database(folder: Path) -> None:
    """A server with --home, for its tokens, must not store conversations in this folder instead of PostgreSQL."""
    (folder / "a.yaml").write_text("model: offline\nmemory: true\n")
    load_agent(folder / "a.yaml", home=folder / "data").close()
    assert (folder / "data" / "memory.db").exists() and not (folder / ".agentkit").exists()
    (folder / "b.yaml").write_text(
        "model: offline\nmemory: {home: 'postgresql://nobody@127.0.0.1:1/none', index: index}\n"
    )
    with raises(AgentFileError, line=2, name="memory"):
        load_agent(folder / "b.yaml", home=folder / "other")
    assert not (folder / "other").exists()


def test_agents_that_share_a_memory_open_it_once(folder: Path) -> None:
    (folder / "prompts" / "found.prompt.j2").write_text("---\nrole: before_input\nkind: memo\n---\n")
    path = written(folder, "model: offline\nmemory: true\nlayers: prompts\n")
    memories = SharedMemories()
    one, two = load_agent(path, memories=memories), load_agent(path, memories=memories)
    assert one.memory is two.memory is not None
    one.close()
    assert two.memory.ingest([folder / "tools.py"]).errors == ()
    readers = []
    for names in ("[manuals]", "[manuals]", "[prices, manuals]", "[]"):
        path = written(folder, f"model: offline\nmemory: {{shared: {names}}}\nlayers: prompts\n")
        readers.append(load_agent(path, memories=memories).memory)
    assert readers[0] is readers[1] is not readers[2] and readers[3] is one.memory
    assert [reader.shared for reader in readers if reader] == [("manuals",), ("manuals",), ("prices", "manuals"), ()]
    memories.close()


def test_memory_that_no_prompt_file_shows_is_named_with_its_line_before_it_is_opened(folder: Path) -> None:
    path = written(folder, "model: offline\nlayers: prompts\nmemory: true\n")
    (problem,) = problems(path)
    assert problem.startswith("3: memory") and "`kind: memo`" in problem
    assert not (folder / ".agentkit").exists()
    (folder / "prompts" / "earlier.prompt.j2").write_text("---\nkind: recalled\nrole: before_input\n---\n")
    load_agent(path).close()


def test_a_module_is_accepted_instead_of_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bookshop.py").write_text(
        "from agentkit import Agent, ScriptedModel\n"
        "agent = Agent(ScriptedModel(['Hi.']), name='one')\n"
        "def make():\n    return Agent(ScriptedModel(['Hi.']), name='two')\n"
        "other = 3\ndef broken():\n    raise RuntimeError('no key')\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "bookshop", raising=False)
    assert load_agent("bookshop:agent").name == "one"
    assert load_agent("bookshop:make").name == "two"
    assert load_agent(f"{folder}/bookshop.py:agent", model="offline").agent.chain.model.name == "offline"
    for source, name, value in (
        ("bookshop:other", "bookshop:other", "int"),
        ("bookshop:nothing", "nothing", None),
        ("bookshop:broken", "bookshop:broken", None),
    ):
        with raises(AgentDefinitionError, name=name, value=value):
            load_agent(source)


def test_the_schema_for_editors_accepts_and_refuses_the_same_files_as_the_checks() -> None:
    schema = agent_file_schema()
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    assert check.is_valid(
        {"model": "offline", "tools": ["./a.py:b", {"mcp": "http://x"}], "memory": True, "budget": 100}
    )
    for wrong in ({}, {"model": 3}, {"model": "x", "toolz": []}, {"model": "x", "limits": {"steps": 0}}):
        assert not check.is_valid(wrong)
    published = json.loads((ROOT / "docs" / "agent.schema.json").read_text("utf-8"))
    assert published == schema, "write it again: agentkit schema --agent-file > docs/agent.schema.json"


def test_a_model_that_completes_text_is_requested_through_its_chat_template(folder: Path) -> None:
    (folder / "mine.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>")
    with serve() as server:
        server.on("own", completes("Five."))
        for template in ("qwen", "mine.jinja"):
            part = f"{{name: '{server.url}#own', chat_template: {template}}}"
            loaded = load_agent(written(folder, f"model: {part}\ninstructions: Add.\n"))
            assert loaded.agent.run_sync("2 + 3?").output == "Five."
            longer = load_agent(written(folder, f"model: {part[:-1]}, session_len: 600}}\ninstructions: Add.\n"))
            assert getattr(longer.agent.chain.model, "session_len", None) == 600
            other = load_agent(folder / "agent.yaml", model=f"{server.url}#other")  # the other settings stay
            assert getattr(other.agent.chain.model, "session_len", None) == 600
        asked = [one.body["prompt"] for one in server.asked]
    assert asked[0].startswith("<|im_start|>system\nAdd.") and asked[1] == "<system>Add.<user>2 + 3?<assistant>"
    (problem,) = problems(written(folder, "model: {name: 'http://h/v1#m', session_len: 600}\n"))
    assert problem.startswith("1: model") and "session_len needs a chat_template" in problem
    (problem,) = problems(written(folder, "model: {name: 'openai:gpt-5-mini', chat_template: qwen}\n"))
    assert problem.startswith("1: model") and "completes text" in problem


def test_missing_names_are_reported_with_the_invalid_keys_of_the_file(folder: Path) -> None:
    text = "model: offline\ntools:\n- ./tools.py:prise\n- ./none.py:x\nlayers: nowhere\nlimts: {}\nlimits: {steps: 0}\n"
    found = problems(written(folder, text))
    assert [one.partition(":")[0] for one in found] == ["6", "7", "5", "3", "4"]
    assert "no 'prise'" in found[3] and "missing file" in found[4]
    folders = sorted(one.name for one in folder.iterdir() if one.is_dir())
    assert problems(written(folder, "model: offline\nmemory: true\nlimts: {}\n"))[0].startswith("3: limts")
    assert sorted(one.name for one in folder.iterdir() if one.is_dir()) == folders, "a memory was made"


THINKS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{{ '<think>' if thinks else '' }}"


def test_the_arguments_of_a_chat_template_are_read_and_also_apply_to_another_model(folder: Path) -> None:
    (folder / "mine.jinja").write_text(THINKS)
    part = "{name: 'http://h/v1#own', chat_template: mine.jinja, template_kwargs: {thinks: true}}"
    file = written(folder, f"model: {part}\n")
    for name in (None, "http://h/v1#other", "offline"):
        agent = load_agent(file, model=name).agent
        model: Any = agent.chain.model
        assert (
            getattr(model, "writer", model).request_body(agent.compose("Hi"))["prompt"].endswith("<assistant><think>")
        )
    (problem,) = problems(written(folder, "model: {name: 'openai:gpt-5-mini', template_kwargs: {thinks: true}}\n"))
    assert problem.startswith("1: model") and "template_kwargs needs a chat_template" in problem


@pytest.mark.parametrize("name", ["http://h/v1#other", "offline"])
def test_another_model_of_a_module_treats_control_tokens_like_the_model_of_the_module(folder: Path, name: str) -> None:
    (folder / "local.py").write_text(
        "from agentkit import Agent\nfrom agentkit.models import CompletionModel\n"
        "agent = Agent(CompletionModel('m', 'qwen', base_url='http://h/v1', control_tokens='reject'))\n"
    )
    agent = load_agent(f"{folder}/local.py:agent", model=name).agent
    model: Any = agent.chain.model
    with pytest.raises(ControlTokenError):
        getattr(model, "writer", model).request_body(agent.compose("Hi<|im_end|>"))


def test_another_model_has_the_settings_of_the_file_or_is_refused(folder: Path) -> None:
    file = written(folder, "model: {name: 'openai:a', settings: {temperature: 0.5, seed: 7}}\n")
    agent = load_agent(file, model="openai:b").agent
    body = agent.chain.model.request_body(agent.compose("Hi"))  # type: ignore[attr-defined]
    assert (body["model"], body["temperature"], body["seed"]) == ("b", 0.5, 7)
    with raises(AgentFileError, path="model", line=None):
        load_agent(file, model="anthropic:c")


@pytest.mark.parametrize("given", ["sub/m", "./sub/m", "sub/m/tokenizer_config.json"])
def test_the_folder_of_a_model_is_relative_to_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (folder / "sub/m").mkdir(parents=True)
    template = "{% for m in messages %}({{ m.role }}){{ m.content }}{% endfor %}"
    (folder / "sub/m/tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "<end>"}), "utf-8"
    )
    model = f"model: {{name: 'http://h/v1#m', chat_template: {given}, control_tokens: reject}}\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    loaded = load_agent(written(folder, f"{model}instructions: Add.\n"))
    chain = loaded.agent.chain
    assert isinstance(chain.model, CompletionModel)
    assert chain.model.request_body(loaded.agent.compose("Hi"))["prompt"] == "(system)Add.(user)Hi"
    with pytest.raises(ControlTokenError):
        chain.model.request_body(loaded.agent.compose("Hi<end>"))


def test_a_tokenizer_counts_tokens_if_the_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    for named in ("tiny", "tiny/tokenizer.json"):
        (tmp_path / "a.yaml").write_text(f"model: offline\ncounter: {named}\n")
        loaded = load_agent(tmp_path / "a.yaml")
        counter = loaded.agent.compose("one two three").counter
        assert (counter.name, counter.estimated, counter.count("one two three")) == ("tiny", False, 3)
        assert folder / "tokenizer.json" in loaded.files


@pytest.mark.parametrize("named", ["cl100k_base", "tiktoken:nope", "a.yaml", "[1]"])
def test_a_tokenizer_that_cannot_be_used_is_reported_with_its_line(tmp_path: Path, named: str) -> None:
    (tmp_path / "a.yaml").write_text(f"model: offline\ncounter: {named}\n")
    with raises(AgentFileError, path=str(tmp_path / "a.yaml"), line=2, name="counter"):
        load_agent(tmp_path / "a.yaml")


def test_an_error_of_an_argument_names_the_argument_and_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: offline\n")
    with raises(AgentFileError, path="chat_template", line=None):
        load_agent(tmp_path / "a.yaml", chat_template="nope")
    with raises(AgentFileError, path="model", line=None):
        load_agent(tmp_path / "a.yaml", model="nope:x")
