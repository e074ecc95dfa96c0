"""Prompts in files: front matter, places, locales, packages, and reloading all at once or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Document,
    KwargsError,
    Layers,
    Memo,
    MemoPrompt,
    PromptContext,
    PromptError,
    PromptFilesError,
    PromptFolder,
    Size,
    TemplateError,
    TextPrompt,
    UserInput,
    UserInputPrompt,
    compose,
)
from agentkit_prompts.system.regular_files import read_regular_text
from tests.prompts.laws import law


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "prompts"
    path.mkdir()
    return path


def write(folder: Path, **files: str) -> None:
    """Write files; `a__zh` is a.zh.prompt.j2, `in_a` stays in_a.prompt.j2."""
    for name, text in files.items():
        (folder / f"{name.replace('__', '.')}.prompt.j2").write_text(text, encoding="utf-8")


def ask(text: str = "hi", **fields: Any) -> PromptContext:
    return PromptContext(**{"user_input": text, **fields})


def broken(folder: Path, **files: str) -> str:
    write(folder, **files)
    with pytest.raises(PromptFilesError) as raised:
        PromptFolder.load(folder)
    assert all(isinstance(error, TemplateError) and error.file for error in raised.value.errors)
    return str(raised.value).replace(f"{folder.as_posix()}/", "")


def test_a_file_without_front_matter_is_a_system_prompt(folder: Path) -> None:
    write(folder, help="You help {{ extra.who }}.\n")
    prompts = PromptFolder.load(folder)
    assert list(prompts) == ["help"]
    assert isinstance(prompts["help"], TextPrompt)
    composition = compose(prompts.layers(), ask(extra={"who": "Ada"}))
    assert composition.system.text == "You help Ada."
    assert prompts["help"].name == "help"
    assert "missing" not in prompts


def test_front_matter_says_everything_about_a_prompt(folder: Path) -> None:
    write(
        folder,
        sources=(
            "---\n"
            "kind: memo\nrole: before_input\norder: 2\nname: passages\n"
            "budget: {min: 10, max: 500, priority: 7, flex: 0.5}\n"
            "volatility: session\nfence: true\nversion: 1.10\nengine: jinja\n"
            "---\n"
            "{% for document in documents %}* {{ document.text }}\n{% endfor %}"
        ),
    )
    prompts = PromptFolder.load(folder)
    prompt = prompts["passages"]
    assert isinstance(prompt, MemoPrompt)
    assert prompt.size == Size(min=10, max=500, cut="items", priority=7, flex=0.5)
    assert (prompt.volatility, prompt.fence) == ("session", True)
    file = prompts.files["passages"]
    assert (file.version, file.role, file.order) == ("1.10", "before_input", 2)
    assert file.files == (f"{folder.as_posix()}/sources.prompt.j2",)
    text = compose(prompts.layers(), ask(documents=["one"], session_key="k")).user.text
    assert "* one" in text and "<untrusted-" in text


def test_prompts_stand_in_their_places_by_order_and_name(folder: Path) -> None:
    write(
        folder,
        b="B",
        a="A",
        first="---\norder: -1.5\n---\nFirst",
        last="---\norder: 10\n---\nLast",
        before="---\nrole: before_input\n---\nBefore",
        after="---\nrole: after_input\n---\nAfter",
        closing="---\nrole: after_intermediate\n---\nClosing",
        apart="---\nrole: none\n---\nApart",
    )
    prompts = PromptFolder.load(folder)
    composition = compose(prompts.layers(), ask())
    assert composition.system.text == "First\n\nA\n\nB\n\nLast"
    assert composition.user.text == "Before\n\nhi\n\nAfter"
    assert prompts["apart"].format_2_str(ask()) == "Apart"
    assert prompts.files["apart"].role is None


def test_layers_takes_other_fields_and_prompts_stand_behind_those_of_the_folder(folder: Path) -> None:
    write(folder, a="A", ask="---\nrole: input\n---\nQ: {{ user_input }}")
    prompts = PromptFolder.load(folder)
    layers = prompts.layers(system="more", after_input=["x", "y"], conversation=False)
    composition = compose(layers, ask())
    assert composition.system.text == "A\n\nmore"
    assert composition.user.text == "Q: hi\n\nx\n\ny"
    assert layers.conversation is False
    assert prompts.layers() is prompts.layers()
    more = ["x"]
    assert prompts.layers(after_input=more) is prompts.layers(after_input=more)
    assert prompts.layers(after_input=["z"]) is not prompts.layers(after_input=more)


@pytest.mark.parametrize(
    "kind",
    ["info", "input", "conversation", "memo", "recalled", "knowledge", "summary", "tools", "examples"],
)
def test_a_kind_without_text_has_its_default_template(folder: Path, kind: str) -> None:
    write(folder, it=f"---\nkind: {kind}\nrole: before_input\n---\n")
    prompt = PromptFolder.load(folder)["it"]
    assert prompt.template.text == type(prompt)().template.text
    assert prompt.size == type(prompt)().size


def test_a_schema_is_checked_before_anything_is_rendered(folder: Path) -> None:
    write(
        folder,
        project=(
            "---\nrole: before_input\n"
            "schema:\n  type: object\n  properties:\n    root: {type: string}\n    depth: {type: integer, default: 3}\n"
            "  required: [root]\n---\nRoot {{ root }}, depth {{ depth }}."
        ),
    )
    layers = PromptFolder.load(folder).layers()
    schema = layers.additional_kwargs_schema
    assert schema is not None
    assert schema["required"] == ["root"]
    assert schema["properties"]["root"]["type"] == "string"
    with pytest.raises(KwargsError, match=r"'root'.*needed by before_input\[0\]"):
        layers.check_kwargs({})
    ctx = ask().evolve(user_input=UserInput("hi", additional_kwargs={"root": "src"}))
    assert compose(layers, ctx).user.text == "Root src, depth 3.\n\nhi"


def test_a_kind_with_a_schema_and_no_text_keeps_its_default_template(folder: Path) -> None:
    write(folder, info="---\nkind: info\nrole: before_input\nschema: {properties: {a: {type: integer}}}\n---\n\n")
    ctx = ask().evolve(user_input=UserInput("hi", additional_kwargs={"a": 1}))
    assert compose(PromptFolder.load(folder).layers(), ctx).user.text == "a: 1\n\nhi"


def test_locales_are_one_prompt_with_a_fallback(folder: Path) -> None:
    write(
        folder,
        greeting="---\norder: 3\nrole: before_input\n---\nHello {{ user_input }}",
        greeting__zh="你好 {{ user_input }}",
        greeting__pt_BR="Oi {{ user_input }}",
        other="---\nname: greeting\nlocale: de\n---\nHallo {{ user_input }}",
    )
    prompts = PromptFolder.load(folder)
    assert list(prompts) == ["greeting"]
    shown = {locale: prompts["greeting"].format_2_str(ask(locale=locale)) for locale in (None, "zh-CN", "pt-BR", "de")}
    assert shown == {None: "Hello hi", "zh-CN": "你好 hi", "pt-BR": "Oi hi", "de": "Hallo hi"}
    assert prompts["greeting"].format_2_str(ask(locale="fr")) == "Hello hi"
    assert prompts.files["greeting"].order == 3
    assert [Path(file).name for file in prompts.files["greeting"].files] == [
        "greeting.prompt.j2",
        "other.prompt.j2",
        "greeting.pt_BR.prompt.j2",
        "greeting.zh.prompt.j2",
    ]


def test_the_fallback_may_say_which_locale_it_is(folder: Path) -> None:
    write(folder, a="---\nlocale: no\n---\nHei", a__en="Hi")
    prompt = PromptFolder.load(folder)["a"]
    assert [prompt.format_2_str(ask(locale=locale)) for locale in (None, "no", "en", "fr")] == [
        "Hei",
        "Hei",
        "Hi",
        "Hei",
    ]


def test_without_a_fallback_the_first_locale_is_it(folder: Path) -> None:
    write(folder, a__zh="好", a__en="Hi")
    assert PromptFolder.load(folder)["a"].format_2_str(ask(locale="fr")) == "Hi"


def test_inner_folders_are_part_of_the_name_and_hidden_ones_are_skipped(folder: Path) -> None:
    (folder / "inner" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    write(folder / "inner" / "deep", a="A", zh="Z")
    write(folder / ".git", hidden="{{")
    (folder / "readme.md").write_text("{{")
    write(folder, **{".hidden": "{{"})
    assert list(PromptFolder.load(folder)) == ["inner/deep/a", "inner/deep/zh"]


def test_the_same_files_have_the_same_version_wherever_they_are(tmp_path: Path) -> None:
    versions = set()
    for name, text in (
        ("one", b"A\n{{ extra }}"),
        ("two", b"\xef\xbb\xbfA\r\n{{ extra }}"),
        ("three", b"A\r{{ extra }}"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.prompt.j2").write_bytes(text)
        prompts = PromptFolder.load(tmp_path / name)
        versions.add((prompts.version, prompts.files["a"].hash, prompts["a"].template.version))
    assert len(versions) == 1
    (tmp_path / "one" / "a.prompt.j2").write_bytes(b"A\n{{ extra }}!")
    assert PromptFolder.load(tmp_path / "one").version not in {version for version, _, _ in versions}


def test_what_the_front_matter_says_changes_the_version_too(folder: Path) -> None:
    write(folder, a="---\norder: 1\n---\nA")
    before = PromptFolder.load(folder)
    write(folder, a="---\norder: 2\n---\nA")
    after = PromptFolder.load(folder)
    assert before.version != after.version
    assert before["a"].template.version == after["a"].template.version


def test_a_composition_knows_the_versions_of_its_prompts(folder: Path) -> None:
    write(folder, a="A")
    prompts = PromptFolder.load(folder)
    assert compose(prompts.layers(), ask()).versions["system[0]"] == prompts["a"].template.version


def test_errors_while_rendering_name_the_file_of_the_locale_and_its_line(folder: Path) -> None:
    write(folder, a="---\norder: 1\n---\nfine", a__zh="---\nlocale: zh\n---\n\n\n{{ extra.nothing.at_all }}")
    layers = PromptFolder.load(folder).layers()
    assert compose(layers, ask()).system.text == "fine"
    with pytest.raises(TemplateError) as raised:
        compose(layers, ask(locale="zh"))
    assert raised.value.file is not None
    assert raised.value.file.endswith("a.zh.prompt.j2")
    assert raised.value.line == 6


def test_spans_count_the_lines_of_the_file(folder: Path) -> None:
    write(folder, a="---\norder: 1\n---\nline 4\n{{ extra.x }}")
    composition = compose(PromptFolder.load(folder).layers(), ask(extra={"x": "y"}))
    assert [span.line for span in composition.spans if span.pointer == "extra.x"] == [5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nrole: system\n{{ x }}", "a.prompt.j2:1: the front matter does not end"),
        ("---", "a.prompt.j2:1: the front matter does not end"),
        ("---\n- a\n- b\n---\n", "a.prompt.j2:2: the front matter must be keys with values"),
        ("---\ntext\n---\n", "a.prompt.j2:2: the front matter must be keys with values"),
        ("---\nrole: [\n---\n", "a.prompt.j2:3: the front matter cannot be read"),
        ("---\n\n\trole: x\n---\n", "a.prompt.j2:3: the front matter cannot be read"),
        ("---\nrole: \0\n---\n", "a.prompt.j2:2: the front matter cannot be read"),
        ("---\norder: 1\nrole: &a system\nname: *a\n---\n", "a.prompt.j2:4: the front matter cannot be read: aliases"),
        ("---\nrole: system\nrole: input\n---\n", "a.prompt.j2:3: the key 'role' is here twice"),
        ("---\nschema: {a: 1, a: 2}\n---\n", "a.prompt.j2:2: the front matter cannot be read: the key a is here twice"),
        ("---\nschema: {? [a] : 2}\n---\n", "a.prompt.j2:2: the front matter cannot be read"),
        ("---\n? [a]\n: 1\n---\n", "a.prompt.j2:2: a key must be text"),
        ("---\norder: 1\n\nrol: system\n---\n", "a.prompt.j2:4: unknown key 'rol'; did you mean 'role'?"),
        ("---\nxyz: 1\n---\n", "a.prompt.j2:2: unknown key 'xyz'; there is: budget, engine, fence"),
        ("---\nrole: top\n---\n", "a.prompt.j2:2: role: expected 'system', 'before_input'"),
        ("---\nkind: memos\n---\n", "a.prompt.j2:2: kind: expected 'text', 'info'"),
        (
            "---\nvolatility: often\n---\n",
            "a.prompt.j2:2: volatility: expected 'static', 'session' or 'turn', got 'often'",
        ),
        ("---\nengine: mustache\n---\n", "a.prompt.j2:2: engine: expected 'jinja' or 'fstring', got 'mustache'"),
        ("---\norder: high\n---\n", "a.prompt.j2:2: order: expected a number, got 'high'"),
        ("---\norder: .nan\n---\n", "a.prompt.j2:2: order: expected a finite number, got nan"),
        ("---\norder: true\n---\n", "a.prompt.j2:2: order: expected a number, got True"),
        ("---\nfence: yes\n---\n", "a.prompt.j2:2: fence: expected true or false, got 'yes'"),
        ("---\nlocale: english\n---\n", "a.prompt.j2:2: locale: expected a language tag"),
        ("---\nname: ''\n---\n", "a.prompt.j2:2: name: expected text, got ''"),
        ("---\nversion: [1, 2]\n---\n", "a.prompt.j2:2: version: expected text, got [1, 2]"),
        ("---\nbudget: 500\n---\n", "a.prompt.j2:2: budget: expected keys such as `max: 500`, got 500"),
        ("---\nbudget: {maximum: 5}\n---\n", "a.prompt.j2:2: budget: unknown key 'maximum'; did you mean 'max'?"),
        ("---\nbudget: {1: 5}\n---\n", "a.prompt.j2:2: budget: unknown key 1; there is: cut, flex, max"),
        ("---\nbudget: {max: 5.5}\n---\n", "a.prompt.j2:2: budget.max: expected a whole number, got 5.5"),
        ("---\nbudget: {min: true}\n---\n", "a.prompt.j2:2: budget.min: expected a whole number, got True"),
        ("---\nbudget: {flex: a}\n---\n", "a.prompt.j2:2: budget.flex: expected a number, got 'a'"),
        ("---\nbudget: {cut: 1}\n---\n", "a.prompt.j2:2: budget.cut: expected 'none', 'drop'"),
        (
            "---\nbudget: {cut: half}\n---\n",
            "a.prompt.j2:2: budget.cut: expected 'none', 'drop', 'head', 'tail', 'middle' or 'items', got 'half'",
        ),
        ("---\norder: 1\nbudget: {min: 5, max: 2}\n---\n", "a.prompt.j2:3: budget: Size: min 5 is above max 2"),
        ("---\nbudget: {cut: items}\n---\n", "a.prompt.j2:2: budget: cut: items needs a kind that shows items"),
        ("---\nschema: text\n---\n", "a.prompt.j2:2: schema: expected a JSON Schema object, got 'text'"),
        ("---\nschema: {1: x}\n---\n", "a.prompt.j2:2: schema.1: keys must be text: put 1 in quotes"),
        ("---\nschema: {x: [.inf]}\n---\n", "a.prompt.j2:2: schema.x.0: expected a finite number, got inf"),
        ("---\nschema: {x: !!binary YQ==}\n---\n", "a.prompt.j2:2: schema.x: expected a JSON value, got b'a'"),
        ("---\nschema: !!python/object/apply:os.system [ls]\n---\n", "a.prompt.j2:2: the front matter cannot be read"),
        ("---\norder: 1\nschema: {properties: 5}\n---\n", "a.prompt.j2:3: params_schema"),
        ("---\nschema: {additionalProperties: false}\n---\n", "a.prompt.j2:2: params_schema cannot be used"),
        ("---\nschema: {properties: {tools: {}}}\n---\n{{ tools }}", "a.prompt.j2:2: a: tools cannot be the name"),
        ("---\norder: 1\n---\n\n{% if %}", "a.prompt.j2:5: "),
        ("---\norder: 1\n---\n\n{{ usr_input }}", "a.prompt.j2:5: a: the context cannot supply 'usr_input' (line 5"),
        ("---\nengine: fstring\n---\n{user_input.text}", "a.prompt.j2:4: "),
        ("---\nfence: trueish\n---\n", "a.prompt.j2:2: fence: expected true or false, got 'trueish'"),
        (
            "---\norder: 1\nfence: !!bool x\n---\n",
            "a.prompt.j2:3: the front matter cannot be read: the value is no bool",
        ),
        ("---\norder: !!int ''\n---\n", "a.prompt.j2:2: the front matter cannot be read: the value is no int"),
        ("---\norder: !!float '-'\n---\n", "a.prompt.j2:2: the front matter cannot be read: the value is no float"),
        ("---\n# " + "x" * 70_000 + "\n---\n", "a.prompt.j2:1: the front matter has 70,003 characters"),
        ("---\norder: " + "9" * 5_000 + "\n---\n", "a.prompt.j2"),
        (
            "---\nschema: " + "[" * 5_000 + "]" * 5_000 + "\n---\n",
            "a.prompt.j2:2: the front matter cannot be read: nests deeper than 64",
        ),
        (
            "---\nschema: " + "{a: " * 70 + "1" + "}" * 70 + "\n---\n",
            "a.prompt.j2:2: the front matter cannot be read: nests deeper than 64",
        ),
    ],
    ids=range(54),
)
def test_a_problem_in_a_file_is_reported_with_its_line(folder: Path, text: str, message: str) -> None:
    assert broken(folder, a=text).startswith(message)


def test_everything_that_is_wrong_with_one_front_matter_is_named_in_the_order_of_its_lines(folder: Path) -> None:
    text = "---\nordr: 1\nkind: memos\nbudget:\n  maxx: 5\n  min: a\nkind: memo\nfence: yes\n---\n{% if %}"
    found = broken(folder, a=text).splitlines()
    assert [line.split(",")[0] for line in found] == [
        "6 problems with prompt files:",
        "a.prompt.j2:2: unknown key 'ordr'; did you mean 'order'? There is: budget",
        "a.prompt.j2:3: kind: expected 'text'",
        "a.prompt.j2:4: budget.min: expected a whole number",
        "a.prompt.j2:4: budget: unknown key 'maxx'; did you mean 'max'? There is: cut",
        "a.prompt.j2:7: the key 'kind' is here twice",
        "a.prompt.j2:8: fence: expected true or false",
    ]


def test_text_that_begins_like_true_is_text(folder: Path) -> None:
    schema = "{properties: {a: {description: true stories, default: falsehood}}}"
    write(folder, a=f"---\nkind: info\nvolatility: session\nschema: {schema}\n---\n{{{{ a }}}}")
    template = PromptFolder.load(folder)["a"].template
    assert template.json_schema == {"properties": {"a": {"description": "true stories", "default": "falsehood"}}}


def test_of_many_problems_with_one_front_matter_some_are_named(folder: Path) -> None:
    found = broken(folder, a="---\n" + "a: 1\n" * 10_000 + "---\n").splitlines()
    assert len(found) == 22
    assert found[-1] == "a.prompt.j2: the front matter has 9,980 more problems"


def test_a_yaml_bomb_is_refused_at_once(folder: Path) -> None:
    levels = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    bomb = f"---\nschema:\n  l0: &l0 [lol]\n{levels}---\nx"
    assert broken(folder, a=bomb).startswith("a.prompt.j2:4: the front matter cannot be read: aliases are not allowed")


def test_all_broken_files_are_named_at_once(folder: Path) -> None:
    (folder / "bytes.prompt.j2").write_bytes(b"ok\nok\n\xff\xfe")
    message = broken(
        folder,
        syntax="{% for %}",
        keys="---\nrol: x\norder: y\n---\n",
        names="one\n{{ usr_input }}",
        fine="fine",
        locale__zh="---\nlocale: en\n---\n",
    )
    assert message.startswith("6 problems with prompt files:\n")
    found = [line.split(": ")[0] for line in message.splitlines()[1:]]
    assert sorted(found) == [
        "bytes.prompt.j2:3",
        "keys.prompt.j2:2",
        "keys.prompt.j2:3",
        "locale.zh.prompt.j2:2",
        "names.prompt.j2:2",
        "syntax.prompt.j2:1",
    ]


def test_an_error_in_one_locale_is_blamed_on_its_file(folder: Path) -> None:
    assert broken(folder, a="fine", a__zh="---\nlocale: zh\n---\n{% if %}").startswith("a.zh.prompt.j2:4: ")
    assert broken(folder, a="fine", a__zh="\n{{ usr }}").startswith("a.zh.prompt.j2:2: ")


def test_locales_may_repeat_but_not_contradict_the_fallback(folder: Path) -> None:
    write(folder, a="---\nrole: input\n---\nA", a__zh="---\nrole: input\nversion: 2\n---\nB")
    assert isinstance(PromptFolder.load(folder)["a"], TextPrompt)
    message = broken(folder, a__zh="---\nversion: 2\nrole: system\nkind: memo\n---\nB")
    assert "a.zh.prompt.j2:3: role differs from a.prompt.j2, which counts for every locale: set it there" in message
    assert "a.zh.prompt.j2:4: kind differs" in message


def test_two_files_for_one_text_are_refused(folder: Path) -> None:
    message = broken(folder, a__zh="A", b="---\nname: a\nlocale: zh\n---\nB")
    assert message.startswith("a.zh.prompt.j2: the text of 'a' for zh is in b.prompt.j2 too")
    assert "the prompt 'a' is in a.prompt.j2 too" in broken(folder, a="A", b="---\nname: a\n---\nB")


def test_prompts_that_conflict_with_each_other_are_refused(folder: Path) -> None:
    schema = "---\nrole: before_input\nschema: {{properties: {{n: {{type: {}}}}}}}\n---\n{{{{ n }}}}"
    write(folder, a=schema.format("integer"), b=schema.format("string"))
    with pytest.raises(PromptFilesError, match=r"before_input\[0\].*before_input\[1\]"):
        PromptFolder.load(folder)


@pytest.mark.parametrize("name", ["missing", "file.txt", "empty", "nul\0"])
def test_a_folder_without_prompts_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(PromptFilesError, match=r"expected a folder with \.prompt\.j2 files|no \.prompt\.j2 file"):
        PromptFolder.load(tmp_path / name)


def test_a_huge_file_is_not_read(folder: Path) -> None:
    with (folder / "big.prompt.j2").open("wb") as stream:
        stream.truncate(10_000_000_000)
    assert "big.prompt.j2: cannot be read (it has more than the 1,048,576 bytes that are read)" in broken(
        folder, a="fine"
    )


def test_links_that_go_in_circles_and_pipes_are_named(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "up").symlink_to(folder, target_is_directory=True)
    (folder / "self.prompt.j2").symlink_to(folder / "self.prompt.j2")
    (folder / "dangling.prompt.j2").symlink_to(folder / "nowhere")
    (folder / "folder.prompt.j2").mkdir()
    os.mkfifo(folder / "pipe.prompt.j2")
    message = broken(folder, a="fine")
    assert "inner/up: a link leads to this folder a second time" in message
    for name in ("self", "dangling", "folder", "pipe"):
        assert f"{name}.prompt.j2: cannot be read (" in message


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="the system has no paths below an open folder")
def test_a_folder_that_is_too_deep_for_a_path_is_named(folder: Path) -> None:
    write(folder, a="x")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 200, dir_fd=at)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    with pytest.raises(PromptFilesError, match=r"cannot be read|expected a folder"):
        PromptFolder.load(folder)
    shutil.rmtree(folder)  # which later cleaning up could not


def test_a_link_to_a_file_of_the_folder_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "shared.txt").write_text("Shared.")
    (folder / "a.prompt.j2").symlink_to("shared.txt")
    (tmp_path / "also").symlink_to(folder, target_is_directory=True)
    for path in (folder, tmp_path / "also"):
        assert PromptFolder.load(path)["a"].format_2_str(ask()) == "Shared."


def test_a_link_that_leads_out_of_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / f"{folder.name}-beside"  # whose name begins with that of the folder
    out.mkdir()
    (out / "b.prompt.j2").write_text("hush")
    write(folder, a="fine")
    prompts = PromptFolder.load(folder)
    (folder / "inner").symlink_to(out, target_is_directory=True)
    for name, target in (
        ("absolute", out / "b.prompt.j2"),
        ("relative", Path("..") / out.name / "b.prompt.j2"),
        ("system", Path("/proc/self/environ")),
        ("through", folder / "relative.prompt.j2"),
    ):
        (folder / f"{name}.prompt.j2").symlink_to(target)
    error = prompts.reload().error
    assert isinstance(error, PromptFilesError)
    for name in ("absolute.prompt.j2", "relative.prompt.j2", "system.prompt.j2", "through.prompt.j2", "inner"):
        assert f"{name}: is a link that leads out of" in str(error)
    assert "hush" not in str(error)
    assert [*prompts] == ["a"]


def test_a_folder_that_is_exchanged_for_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    top, out, link = tmp_path / "top", tmp_path / "out", tmp_path / "link"
    for folder, words in ((top / "inner", "fine"), (out, "hush")):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(words)
    link.symlink_to(out, target_is_directory=True)
    ended = Event()

    def exchange() -> None:
        while not ended.is_set():
            (top / "inner").rename(tmp_path / "kept")
            link.rename(top / "inner")
            (top / "inner").rename(link)
            (tmp_path / "kept").rename(top / "inner")

    thread = Thread(target=exchange)
    thread.start()
    read = set()
    try:
        for _ in range(1_000):
            with suppress(OSError):
                read.add(read_regular_text(top / "inner/a.txt", folder=top.resolve()))
    finally:
        ended.set()
        thread.join()
    assert read <= {"fine"}
    assert read_regular_text(top / "inner/a.txt", folder=top.resolve()) == "fine"


def test_a_link_that_leads_out_of_a_package_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.txt").write_text("hush")
    for parent in ("one", "two"):  # a package without __init__.py, spread over two folders
        (tmp_path / parent / "spread_prompts").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / parent)
    (tmp_path / "one/spread_prompts/a.prompt.j2").write_text("fine")
    assert [*PromptFolder.from_package("spread_prompts")] == ["a"]
    (tmp_path / "two/spread_prompts/b.prompt.j2").symlink_to(tmp_path / "out.txt")
    with pytest.raises(PromptFilesError, match=r"b\.prompt\.j2: is a link that leads out of"):
        PromptFolder.from_package("spread_prompts")


def test_nothing_changed_means_the_same_objects(folder: Path) -> None:
    write(folder, a="A", b="B")
    prompts = PromptFolder.load(folder)
    a, layers, version = prompts["a"], prompts.layers(), prompts.version
    result = prompts.reload()
    assert (result.changed, result.error) == ((), None)
    os.utime(folder / "a.prompt.j2")
    assert prompts.reload().changed == ()
    assert (prompts["a"], prompts.layers(), prompts.version) == (a, layers, version)
    assert prompts.layers() is layers


def test_a_reload_replaces_what_changed_and_keeps_the_rest(folder: Path) -> None:
    write(folder, a="A", b="B", gone="x", a__zh="好")
    prompts = PromptFolder.load(folder)
    before = dict(prompts)
    write(folder, b="B2", new="N")
    (folder / "gone.prompt.j2").unlink()
    assert prompts.reload().changed == ("b", "gone", "new")
    assert prompts["a"] is before["a"]
    assert compose(prompts.layers(), ask()).system.text == "A\n\nB2\n\nN"
    assert len(prompts) == 3
    (folder / "a.zh.prompt.j2").unlink()
    assert prompts.reload().changed == ("a",)


def test_the_memo_stays_warm_over_a_reload_that_changes_nothing(folder: Path) -> None:
    write(folder, a="A {{ extra.x }}")
    prompts = PromptFolder.load(folder)
    memo, ctx = Memo(), ask(extra={"x": "y"})
    first = compose(prompts.layers(), ctx, memo=memo)
    prompts.reload()
    assert compose(prompts.layers(), ctx, memo=memo).system is first.system


def test_when_something_is_broken_the_old_version_stays_and_the_result_says_so(folder: Path) -> None:
    write(folder, a="A", b="B")
    prompts = PromptFolder.load(folder)
    before = (dict(prompts), prompts.version, prompts.layers(), dict(prompts.files))
    write(folder, a="A2", b="one\n{{ oops")
    result = prompts.reload()
    assert result.changed == ()
    assert isinstance(result.error, PromptFilesError)
    assert "b.prompt.j2:2: " in str(result.error)
    assert (dict(prompts), prompts.version, prompts.layers(), dict(prompts.files)) == before
    write(folder, b="B")
    assert prompts.reload().changed == ("a",)
    for file in folder.iterdir():
        file.unlink()
    assert "no .prompt.j2 file" in str(prompts.reload().error)
    folder.rmdir()
    assert prompts.reload().error is not None
    assert prompts["a"].format_2_str(ask()) == "A2"


def test_readers_never_see_a_half_reloaded_folder(folder: Path) -> None:
    write(folder, a="1", b="1")
    prompts = PromptFolder.load(folder)
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(compose(prompts.layers(), ask()).system.text)

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(2, 30):
        write(folder, a=str(turn), b=str(turn))
        assert prompts.reload().error is None
    done.set()
    reader.join()
    assert all(text.split("\n\n")[0] == text.split("\n\n")[1] for text in seen)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"made_{tmp_path.name.replace('-', '_')}"
    archive = tmp_path / "made.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(f"{name}/__init__.py", "")
        made.writestr(f"{name}/code.py", "")
        made.writestr(f"{name}/prompts/__init__.py", "")
        made.writestr(f"{name}/prompts/a.prompt.j2", "---\norder: 1\n---\nA")
        made.writestr(f"{name}/prompts/a.zh.prompt.j2", "好")
        made.writestr(f"{name}/prompts/inner/b.prompt.j2", "B")
        made.writestr(f"{name}/bad/__init__.py", "")
        made.writestr(f"{name}/bad/big.prompt.j2", "x" * (1 << 20) + "y")
    monkeypatch.syspath_prepend(str(archive))
    return name


def test_a_package_brings_its_prompts_along_also_zipped(package: str) -> None:
    prompts = PromptFolder.from_package(f"{package}.prompts")
    assert list(prompts) == ["a", "inner/b"]
    assert prompts["a"].format_2_str(ask(locale="zh")) == "好"
    assert prompts.files["a"].files[0] == f"{package}.prompts/a.prompt.j2"
    assert prompts.reload().changed == ()
    with pytest.raises(PromptFilesError, match=r"big\.prompt\.j2: cannot be read \(it has more than the 1,048,576"):
        PromptFolder.from_package(f"{package}.bad")


@pytest.mark.parametrize("name", ["no_such_package_anywhere", "", "json.decoder", "agentkit.cli"])
def test_a_package_that_has_no_prompts_is_refused_by_name(name: str) -> None:
    with pytest.raises(PromptFilesError, match=name or "''"):
        PromptFolder.from_package(name)


KEYS = st.sampled_from(
    ["role", "kind", "budget", "schema", "order", "name", "locale", "version", "fence", "engine", "x"]
)
VALUES = st.sampled_from(
    ["input", "memo", "{max: 5, cut: items}", "{properties: {a: {}}}", "1", "zh", "true", "[", "~"]
)
LINES = st.one_of(st.builds("{}: {}".format, KEYS, VALUES | st.text(max_size=9)), st.text(max_size=20))


@law
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_any_front_matter_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    try:
        (folder / "a.prompt.j2").write_text(f"---\n{text}\n---\nbody", encoding="utf-8")
    except UnicodeEncodeError:
        return
    try:
        prompts = PromptFolder.load(folder)
    except PromptError as error:
        assert "a.prompt.j2" in str(error)
    else:
        assert len(prompts) == 1


def test_a_folder_says_what_it_holds(folder: Path) -> None:
    write(folder, a="A")
    prompts = PromptFolder.load(str(folder))
    assert repr(prompts) == f"PromptFolder({folder.as_posix()!r}, 1 prompts, version {prompts.version})"
    with pytest.raises(TypeError):
        prompts.files["b"] = prompts.files["a"]  # type: ignore[index]


def test_yaml_is_loaded_by_files_with_front_matter_only(folder: Path) -> None:
    write(folder, a="A")
    code = (
        "import sys; from agentkit.prompts import *; assert 'yaml' not in sys.modules; "
        f"PromptFolder.load({json.dumps(folder.as_posix())}); print('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_input_of_the_folder_takes_the_place_of_the_usual_one(folder: Path) -> None:
    write(folder, ask="---\nrole: input\nkind: input\n---\n")
    layers = PromptFolder.load(folder).layers()
    assert isinstance(layers, Layers)
    (prompt,) = layers.input
    assert isinstance(prompt, UserInputPrompt)
    assert compose(layers, ask(documents=[Document("x")])).user.text == "hi"
