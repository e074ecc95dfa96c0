"""Prompts in files: front matter, places, locales, packages, and atomic reloads."""

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
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Document,
    KwargsError,
    Layers,
    MemoPrompt,
    PromptContext,
    PromptError,
    PromptFilesError,
    PromptFolder,
    RenderCache,
    SchemaConflict,
    Size,
    Template,
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
    """Write files; `a__zh` is a.zh.prompt.j2, `in_a` is in_a.prompt.j2."""
    for name, text in files.items():
        (folder / f"{name.replace('__', '.')}.prompt.j2").write_text(text, encoding="utf-8")


def ask(text: str = "hi", **fields: Any) -> PromptContext:
    return PromptContext(**{"user_input": text, **fields})


def faults(folder: Path, **files: str) -> list[tuple[str, int | None, str | None]]:
    """Return file, line and key of each problem of a folder."""
    write(folder, **files)
    with pytest.raises(PromptFilesError) as raised:
        PromptFolder.load(folder)
    return [place_of(error, folder) for error in raised.value.errors]


def place_of(error: PromptError, folder: Path) -> tuple[str, int | None, str | None]:
    assert isinstance(error, TemplateError) and error.file
    return error.file.removeprefix(f"{folder.as_posix()}/").removesuffix(".prompt.j2"), error.line, error.name


def test_a_file_without_front_matter_is_a_system_prompt(folder: Path) -> None:
    write(folder, help="You help {{ extra.who }}.\n")
    prompts = PromptFolder.load(folder)
    assert list(prompts) == ["help"]
    assert isinstance(prompts["help"], TextPrompt)
    composition = compose(prompts.layers(), ask(extra={"who": "Ada"}))
    assert composition.system.text == "You help Ada."
    assert prompts["help"].name == "help"
    assert "missing" not in prompts and prompts.get("missing") is None
    with pytest.raises(KeyError, match="'help'"):
        prompts["hlp"]


def test_front_matter_sets_all_fields_of_a_prompt(folder: Path) -> None:
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


def test_prompts_have_their_places_by_order_and_name(folder: Path) -> None:
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


def test_layers_accepts_other_fields_and_appends_prompts_to_the_prompts_of_the_folder(folder: Path) -> None:
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


def test_a_schema_is_checked_before_the_rendering(folder: Path) -> None:
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
    with pytest.raises(KwargsError) as caught:
        layers.check_kwargs({})
    assert [paths for _, paths in caught.value.problems.values()] == [("before_input[0]",)]
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


def test_the_fallback_can_have_a_locale(folder: Path) -> None:
    write(folder, a="---\nlocale: no\n---\nHei", a__en="Hi")
    prompt = PromptFolder.load(folder)["a"]
    assert [prompt.format_2_str(ask(locale=locale)) for locale in (None, "no", "en", "fr")] == [
        "Hei",
        "Hei",
        "Hi",
        "Hei",
    ]


def test_the_first_locale_replaces_a_missing_fallback(folder: Path) -> None:
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


def test_the_same_files_have_the_same_version_in_any_folder(tmp_path: Path) -> None:
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


def test_a_change_of_the_front_matter_changes_the_version(folder: Path) -> None:
    write(folder, a="---\norder: 1\n---\nA")
    before = PromptFolder.load(folder)
    write(folder, a="---\norder: 2\n---\nA")
    after = PromptFolder.load(folder)
    assert before.version != after.version
    assert before["a"].template.version == after["a"].template.version


def test_a_composition_lists_the_versions_of_its_prompts(folder: Path) -> None:
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


FRONT_MATTER_FAULTS: list[tuple[str, int, str | None]] = [
    ("---\nrole: system\n{{ x }}", 1, None),
    ("---", 1, None),
    ("---\n- a\n- b\n---\n", 2, None),
    ("---\ntext\n---\n", 2, None),
    ("---\nrole: [\n---\n", 3, None),
    ("---\n\n\trole: x\n---\n", 3, None),
    ("---\nrole: \0\n---\n", 2, None),
    ("---\norder: 1\nrole: &a system\nname: *a\n---\n", 4, None),
    ("---\nrole: system\nrole: input\n---\n", 3, "role"),
    ("---\nschema: {a: 1, a: 2}\n---\n", 2, None),
    ("---\nschema: {? [a] : 2}\n---\n", 2, None),
    ("---\n? [a]\n: 1\n---\n", 2, None),
    ("---\norder: 1\n\nrol: system\n---\n", 4, "rol"),
    ("---\nxyz: 1\n---\n", 2, "xyz"),
    ("---\nrole: top\n---\n", 2, "role"),
    ("---\nkind: memos\n---\n", 2, "kind"),
    ("---\nvolatility: often\n---\n", 2, "volatility"),
    ("---\nengine: mustache\n---\n", 2, "engine"),
    ("---\norder: high\n---\n", 2, "order"),
    ("---\norder: .nan\n---\n", 2, "order"),
    ("---\norder: true\n---\n", 2, "order"),
    ("---\nfence: yes\n---\n", 2, "fence"),
    ("---\nlocale: english\n---\n", 2, "locale"),
    ("---\nname: ''\n---\n", 2, "name"),
    ("---\nversion: [1, 2]\n---\n", 2, "version"),
    ("---\nbudget: 500\n---\n", 2, "budget"),
    ("---\nbudget: {maximum: 5}\n---\n", 2, "budget.maximum"),
    ("---\nbudget: {1: 5}\n---\n", 2, "budget.1"),
    ("---\nbudget: {max: 5.5}\n---\n", 2, "budget.max"),
    ("---\nbudget: {min: true}\n---\n", 2, "budget.min"),
    ("---\nbudget: {target: -1}\n---\n", 2, "budget.target"),
    ("---\nbudget: {flex: a}\n---\n", 2, "budget.flex"),
    ("---\nbudget: {cut: 1}\n---\n", 2, "budget.cut"),
    ("---\nbudget: {cut: half}\n---\n", 2, "budget.cut"),
    ("---\norder: 1\nbudget: {min: 5, max: 2}\n---\n", 3, "budget"),
    ("---\nbudget: {cut: items}\n---\n", 2, "budget"),
    ("---\nschema: text\n---\n", 2, "schema"),
    ("---\nschema: {1: x}\n---\n", 2, "schema.1 (key)"),
    ("---\nschema: {x: [.inf]}\n---\n", 2, "schema.x[0]"),
    ("---\nschema: {x: !!binary YQ==}\n---\n", 2, "schema.x"),
    ("---\nschema: !!python/object/apply:os.system [ls]\n---\n", 2, None),
    ("---\norder: 1\nschema: {properties: 5}\n---\n", 3, "schema"),
    ("---\nschema: {additionalProperties: false}\n---\n", 2, "schema"),
    ("---\nschema: {properties: {tools: {}}}\n---\n{{ tools }}", 2, "schema"),
    ("---\nfence: trueish\n---\n", 2, "fence"),
    ("---\norder: 1\nfence: !!bool x\n---\n", 3, None),
    ("---\norder: !!int ''\n---\n", 2, None),
    ("---\norder: !!float '-'\n---\n", 2, None),
    ("---\norder: !!timestamp x\n---\n", 2, None),
    ('---\norder: 1\nfence: "\\UFFFFFFFF"\n---\n', 3, None),
    ('---\norder: 1\nfence: "\\U00110000"\n---\n', 3, None),
    ("---\n%YAML " + "9" * 5_000 + ".1\n---\n", 2, None),
    ("---\n# " + "x" * 70_000 + "\n---\n", 1, None),
    ("---\norder: " + "9" * 5_000 + "\n---\n", 2, None),
    ("---\nschema: " + "[" * 5_000 + "]" * 5_000 + "\n---\n", 2, None),
    ("---\nschema: " + "{a: " * 110 + "1" + "}" * 110 + "\n---\n", 2, None),
]
"""Front matter, and line and key of its problem."""
TEMPLATE_FAULTS = [
    ("---\norder: 1\n---\n\n{% if %}", 5),
    ("---\norder: 1\n---\n\n{{ usr_input }}", 5),
    ("---\nengine: fstring\n---\n{user_input.text}", 4),
]


ENGINES: list[Literal["jinja", "fstring", "literal"]] = ["jinja", "fstring", "literal"]


def test_every_engine_omits_the_line_break_at_the_end_of_a_file(folder: Path) -> None:
    context = PromptContext("x")
    for engine in ENGINES:
        for end, rest in [("", ""), ("\n", ""), ("\r\n", ""), ("\n\n", "\n")]:
            file = folder / "text.txt"
            file.write_bytes(f"Be brief.{end}".encode())
            prompt = TextPrompt(Template.from_file(file, engine=engine))
            assert prompt.format_2_str(context) == f"Be brief.{rest}", (engine, end)
    for slot in ("", " {user_input}"):
        (folder / "a.prompt.j2").write_text(f"---\nengine: fstring\n---\nBe brief.{slot}\n")
        prompts = PromptFolder.load(folder)
        assert compose(Layers([prompts["a"], "Next."]), context).system.text == f"Be brief.{slot and ' x'}\n\nNext."
        assert prompts["a"].template.text == f"Be brief.{slot}\n"


def test_a_problem_in_a_file_is_reported_with_its_line(folder: Path) -> None:
    failures: list[str] = []
    for text, line, key in FRONT_MATTER_FAULTS:
        problems = faults(folder, a=text)
        if problems != [("a", line, key)]:
            failures.append(f"{text[:200]!r}: expected line {line}, key {key}; got {problems}")
    for text, line in TEMPLATE_FAULTS:
        problems = faults(folder, a=text)
        if [problem[:2] for problem in problems] != [("a", line)]:
            failures.append(f"{text!r}: expected line {line}; got {problems}")
    assert failures == []


def test_the_error_names_each_problem_of_a_front_matter_in_order(folder: Path) -> None:
    text = "---\nordr: 1\nkind: memos\nbudget:\n  maxx: 5\n  min: a\nkind: memo\nfence: yes\n---\n{% if %}"
    assert faults(folder, a=text) == [
        ("a", 2, "ordr"),
        ("a", 3, "kind"),
        ("a", 4, "budget.min"),
        ("a", 4, "budget.maxx"),
        ("a", 7, "kind"),
        ("a", 8, "fence"),
    ]


def test_text_that_begins_with_true_is_text(folder: Path) -> None:
    schema = "{properties: {a: {description: true stories, default: falsehood}}}"
    write(folder, a=f"---\nkind: info\nvolatility: session\nschema: {schema}\n---\n{{{{ a }}}}")
    template = PromptFolder.load(folder)["a"].template
    assert template.json_schema == {"properties": {"a": {"description": "true stories", "default": "falsehood"}}}


def test_the_error_of_many_problems_names_the_first_and_counts_the_rest(folder: Path) -> None:
    found = faults(folder, a="---\n" + "a: 1\n" * 10_000 + "---\n")
    assert found[:20] == [("a", line, "a") for line in range(2, 22)]
    assert found[20:] == [("a", None, None)]  # the number of the other problems


def test_a_yaml_bomb_is_refused_quickly(folder: Path) -> None:
    levels = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    bomb = f"---\nschema:\n  l0: &l0 [lol]\n{levels}---\nx"
    assert faults(folder, a=bomb) == [("a", 4, None)]


def test_the_error_names_all_invalid_files(folder: Path) -> None:
    (folder / "bytes.prompt.j2").write_bytes(b"ok\nok\n\xff\xfe")
    found = faults(
        folder,
        syntax="{% for %}",
        keys="---\nrol: x\norder: y\n---\n",
        names="one\n{{ usr_input }}",
        fine="fine",
        locale__zh="---\nlocale: en\n---\n",
    )
    assert sorted(fault[:2] for fault in found) == [
        ("bytes", 3),
        ("keys", 2),
        ("keys", 3),
        ("locale.zh", 2),
        ("names", 2),
        ("syntax", 1),
    ]


def test_the_error_of_a_locale_names_its_file(folder: Path) -> None:
    (fault,) = faults(folder, a="fine", a__zh="---\nlocale: zh\n---\n{% if %}")
    assert fault[:2] == ("a.zh", 4)
    (fault,) = faults(folder, a="fine", a__zh="\n{{ usr }}")
    assert fault[:2] == ("a.zh", 2)


def test_locales_can_repeat_but_not_contradict_the_fallback(folder: Path) -> None:
    write(folder, a="---\nrole: input\n---\nA", a__zh="---\nrole: input\nversion: 2\n---\nB")
    assert isinstance(PromptFolder.load(folder)["a"], TextPrompt)
    contradictions = faults(folder, a__zh="---\nversion: 2\nrole: system\nkind: memo\n---\nB")
    assert contradictions == [("a.zh", 3, "role"), ("a.zh", 4, "kind")]
    defaults = {"role": "system", "kind": "text", "order": 0, "fence": "false", "engine": "jinja"}
    front = "".join(f"{key}: {value}\n" for key, value in defaults.items())
    write(folder, a="A", a__zh=f"---\n{front}---\nB")
    assert PromptFolder.load(folder)["a"].template.text == {"": "A", "zh": "B"}
    settings = ["order: 1", "fence: true", "volatility: turn", "engine: fstring", "budget: {priority: 0}", "schema: {}"]
    for setting in settings:
        assert faults(folder, a__zh=f"---\n{setting}\n---\nB") == [("a.zh", 2, setting.split(":")[0])]


def test_two_files_for_one_text_are_refused(folder: Path) -> None:
    for locale in ("zh", "ZH"):
        assert faults(folder, a__zh="A", b=f"---\nname: a\nlocale: {locale}\n---\nB") == [("a.zh", None, "name")]
    assert faults(folder, a="A", b="---\nname: a\n---\nB") == [("b", 2, "name")]


def test_prompts_that_conflict_with_each_other_are_refused(folder: Path) -> None:
    schema = "---\nrole: before_input\nschema: {{properties: {{n: {{type: {}}}}}}}\n---\n{{{{ n }}}}"
    write(folder, a=schema.format("integer"), b=schema.format("string"))
    with pytest.raises(PromptFilesError) as caught:
        PromptFolder.load(folder)
    assert [type(error) for error in caught.value.errors] == [SchemaConflict]


@pytest.mark.parametrize("name", ["missing", "file.txt", "empty", "nul\0"])
def test_a_folder_without_prompts_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(PromptFilesError) as caught:
        PromptFolder.load(tmp_path / name)
    (error,) = caught.value.errors
    assert (tmp_path / name).as_posix() in (error.path, getattr(error, "file", None))


def test_a_huge_file_is_not_read(folder: Path) -> None:
    with (folder / "big.prompt.j2").open("wb") as stream:
        stream.truncate(10_000_000_000)
    assert faults(folder, a="fine") == [("big", None, None)]


def test_the_error_names_cyclic_links_and_pipes(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "up").symlink_to(folder, target_is_directory=True)
    (folder / "self.prompt.j2").symlink_to(folder / "self.prompt.j2")
    (folder / "dangling.prompt.j2").symlink_to(folder / "nowhere")
    (folder / "folder.prompt.j2").mkdir()
    os.mkfifo(folder / "pipe.prompt.j2")
    files = {file for file, _, _ in faults(folder, a="fine")}
    assert files == {"inner/up", "self", "dangling", "folder", "pipe"}


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="the system has no paths below an open folder")
def test_the_error_names_a_folder_that_is_too_deep_for_a_path(folder: Path) -> None:
    write(folder, a="x")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 200, dir_fd=at)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    with pytest.raises(PromptFilesError):
        PromptFolder.load(folder)
    shutil.rmtree(folder)  # the final cleanup could not remove it


def test_a_link_to_a_file_of_the_folder_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "shared.txt").write_text("Shared.")
    (folder / "a.prompt.j2").symlink_to("shared.txt")
    (tmp_path / "also").symlink_to(folder, target_is_directory=True)
    for path in (folder, tmp_path / "also"):
        assert PromptFolder.load(path)["a"].format_2_str(ask()) == "Shared."


def test_a_link_to_a_target_outside_of_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / f"{folder.name}-beside"  # its name begins with the name of the folder
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
    files = {place_of(problem, folder)[0] for problem in error.errors}
    assert files == {"absolute", "relative", "system", "through", "inner"}
    assert "hush" not in str(error)
    assert [*prompts] == ["a"]


def test_a_folder_that_is_replaced_by_a_link_during_a_read_is_not_followed(tmp_path: Path) -> None:
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


def test_a_link_to_a_target_outside_of_a_package_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.txt").write_text("hush")
    for parent in ("one", "two"):  # a package without __init__.py, spread over two folders
        (tmp_path / parent / "spread_prompts").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / parent)
    (tmp_path / "one/spread_prompts/a.prompt.j2").write_text("fine")
    assert [*PromptFolder.from_package("spread_prompts")] == ["a"]
    (tmp_path / "two/spread_prompts/b.prompt.j2").symlink_to(tmp_path / "out.txt")
    with pytest.raises(PromptFilesError) as caught:
        PromptFolder.from_package("spread_prompts")
    files = [str(error.file) for error in caught.value.errors if isinstance(error, TemplateError)]
    assert any(file.endswith("b.prompt.j2") for file in files)


def test_a_reload_without_changes_keeps_the_objects(folder: Path) -> None:
    write(folder, a="A", b="B")
    prompts = PromptFolder.load(folder)
    a, layers, version = prompts["a"], prompts.layers(), prompts.version
    result = prompts.reload()
    assert (result.changed, result.error) == ((), None)
    os.utime(folder / "a.prompt.j2")
    assert prompts.reload().changed == ()
    assert (prompts["a"], prompts.layers(), prompts.version) == (a, layers, version)
    assert prompts.layers() is layers


def test_a_reload_replaces_changed_prompts_and_keeps_the_rest(folder: Path) -> None:
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


def test_the_cache_stays_warm_after_a_reload_without_changes(folder: Path) -> None:
    write(folder, a="A {{ extra.x }}")
    prompts = PromptFolder.load(folder)
    cache, ctx = RenderCache(), ask(extra={"x": "y"})
    first = compose(prompts.layers(), ctx, cache=cache)
    prompts.reload()
    assert compose(prompts.layers(), ctx, cache=cache).system is first.system


def test_a_reload_with_an_error_keeps_the_old_version_and_returns_the_error(folder: Path) -> None:
    write(folder, a="A", b="B")
    prompts = PromptFolder.load(folder)
    before = (dict(prompts), prompts.version, prompts.layers(), dict(prompts.files))
    write(folder, a="A2", b="one\n{{ oops")
    result = prompts.reload()
    assert result.changed == ()
    assert isinstance(result.error, PromptFilesError)
    assert [place_of(error, folder)[:2] for error in result.error.errors] == [("b", 2)]
    assert (dict(prompts), prompts.version, prompts.layers(), dict(prompts.files)) == before
    write(folder, b="B")
    assert prompts.reload().changed == ("a",)
    for file in folder.iterdir():
        file.unlink()
    assert isinstance(prompts.reload().error, PromptFilesError)
    folder.rmdir()
    assert prompts.reload().error is not None
    assert prompts["a"].format_2_str(ask()) == "A2"


def test_readers_see_no_partial_reload(folder: Path) -> None:
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


def test_prompts_of_a_package_are_read_also_from_a_zip_file(package: str) -> None:
    prompts = PromptFolder.from_package(f"{package}.prompts")
    assert list(prompts) == ["a", "inner/b"]
    assert prompts["a"].format_2_str(ask(locale="zh")) == "好"
    assert prompts.files["a"].files[0] == f"{package}.prompts/a.prompt.j2"
    assert prompts.reload().changed == ()
    with pytest.raises(PromptFilesError) as caught:
        PromptFolder.from_package(f"{package}.bad")
    (error,) = caught.value.errors
    assert isinstance(error, TemplateError) and str(error.file).endswith("big.prompt.j2")


@pytest.mark.parametrize("name", ["no_such_package_anywhere", "", "json.decoder", "agentkit.cli"])
def test_the_error_names_a_package_without_prompts(name: str) -> None:
    with pytest.raises(PromptFilesError) as caught:
        PromptFolder.from_package(name)
    (error,) = caught.value.errors
    assert name in (error.name, error.path)


KEYS = st.sampled_from(
    ["role", "kind", "budget", "schema", "order", "name", "locale", "version", "fence", "engine", "x"]
)
VALUES = st.sampled_from(
    ["input", "memo", "{max: 5, cut: items}", "{properties: {a: {}}}", "1", "zh", "true", "[", "~"]
)
LINES = st.one_of(st.builds("{}: {}".format, KEYS, VALUES | st.text(max_size=9)), st.text(max_size=20))


@law
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_any_front_matter_is_read_or_a_typed_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
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


def test_a_folder_has_a_repr_and_immutable_files(folder: Path) -> None:
    write(folder, a="A")
    prompts = PromptFolder.load(str(folder))
    assert repr(prompts) == f"PromptFolder({folder.as_posix()!r}, 1 prompts, version {prompts.version})"
    with pytest.raises(TypeError):
        prompts.files["b"] = prompts.files["a"]  # type: ignore[index]


def test_only_files_with_front_matter_import_yaml(folder: Path) -> None:
    write(folder, a="A")
    code = (
        "import sys; from agentkit.prompts import *; assert 'yaml' not in sys.modules; "
        f"PromptFolder.load({json.dumps(folder.as_posix())}); print('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_input_of_the_folder_replaces_the_default_input(folder: Path) -> None:
    write(folder, ask="---\nrole: input\nkind: input\n---\n")
    layers = PromptFolder.load(folder).layers()
    assert isinstance(layers, Layers)
    (prompt,) = layers.input
    assert isinstance(prompt, UserInputPrompt)
    assert compose(layers, ask(documents=[Document("x")])).user.text == "hi"
