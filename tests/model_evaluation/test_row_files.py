"""Rows come from files of lines, JSON and tables, and all problems of a file are reported with their places."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from agentkit import ScriptedModel
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import InContextError, load_rows

ROWS = [{"question": "1+1?", "answer": "2"}, {"question": 'a, "b"\nc', "answer": "é"}]
FORMS = {
    "rows.jsonl": '{"question": "1+1?", "answer": "2"}\n\n{"question": "a, \\"b\\"\\nc", "answer": "é"}\r\n',
    "rows.json": '[{"question": "1+1?", "answer": "2"}, {"question": "a, \\"b\\"\\nc", "answer": "é"}]',
    "rows.csv": '\ufeffquestion,answer\n1+1?,2\n\n"a, ""b""\nc",é\n',
    "rows.TSV": 'question\tanswer\n1+1?\t2\n"a, ""b""\nc"\té\n',
}


def refused(path: Path) -> InContextError:
    """Return the error of a file whose rows cannot be read."""
    with pytest.raises(InContextError) as caught:
        load_rows(path)
    return caught.value


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_the_same_from_every_kind_of_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FORMS[name], "utf-8", newline="")
    assert load_rows(tmp_path / name) == ROWS


@pytest.mark.parametrize(("name", "end"), [("a.csv", ",2\n"), ("a.tsv", "\t2\n"), ("b.csv", ',"x\ny"\n')])
def test_a_cell_of_a_table_has_any_length(tmp_path: Path, name: str, end: str) -> None:
    limit = csv.field_size_limit()
    (tmp_path / name).write_text(f"question{end[0]}answer\n{'q' * 200_000}{end}")
    assert len(load_rows(tmp_path / name)[0]["question"]) == 200_000
    assert csv.field_size_limit() == limit


def test_splits_are_an_object_or_the_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text('{"train": [{"a": 1}], "test": [{"a": 2}, {"a": 3}]}')
    splits = {"train": [{"a": 1}], "test": [{"a": 2}, {"a": 3}]}
    assert load_rows(tmp_path / "all.json") == splits
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"a": 1}')
    (folder / "test.json").write_text('[{"a": 2}, {"a": 3}]')
    (folder / "README.md").write_text("of other kinds nothing is read")
    assert load_rows(folder) == splits


async def test_a_configuration_that_shows_no_examples_needs_no_training_split() -> None:
    cfg = {
        "reader_cfg": {"input_columns": ["q"], "output_column": "a"},
        "infer_cfg": {"prompt_template": {"template": "{q}"}, "retriever": {"type": "x.ZeroRetriever"}},
    }
    found = await evaluation.run(cfg, {"test": [{"q": "1", "a": "x"}]}, ScriptedModel(["x"]), score="exact")
    assert found.score == 1.0
    cfg["infer_cfg"] = {**cfg["infer_cfg"], "retriever": {"type": "FixKRetriever", "fix_id_list": [0]}}
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg, {"test": [{"q": "1", "a": "x"}]}, ScriptedModel(["x"]), score="exact")
    assert [place for place, _ in caught.value.problems] == ["train"]


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("x.jsonl", '{"a": 1}\n[1]\n{"a": \n', ["line 2", "line 3"]),
        ("x.json", "[1, {}, null]", ["row 0", "row 2"]),
        ("x.csv", "a,,a\n1,2,3\n1,2\n1,2,3,4\n", ["column 2", "column a", "line 3", "line 4"]),
        ("x.csv", 'a,b\n"1', ["line 2"]),
    ],
)
def test_the_problems_of_a_file_are_reported_with_their_places(
    tmp_path: Path, name: str, text: str, places: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    error = refused(tmp_path / name)
    assert (error.path, [place for place, _ in error.problems]) == (str(tmp_path / name), places)


@pytest.mark.parametrize(
    ("file", "text", "split", "name", "value"),
    [
        ("x.json", "{", "", "JSON", None),
        ("x.json", '"a"', "", None, "str"),
        ("x.json", '{"test": {"a": 1}}', ": split 'test'", None, "dict"),
        ("x.json", "[]", "", "rows", None),
        ("x.csv", "", "", "rows", None),
        ("x.jsonl", "\n", "", "rows", None),
        ("x.parquet", "PAR1", "", None, ".parquet"),
    ],
)
def test_a_file_without_rows_is_refused(
    tmp_path: Path, file: str, text: str, split: str, name: str | None, value: str | None
) -> None:
    (tmp_path / file).write_text(text)
    error = refused(tmp_path / file)
    assert (error.path, error.name, error.value) == (f"{tmp_path / file}{split}", name, value)


def test_a_folder_without_rows_or_with_one_split_twice_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert (error.path, error.name) == (str(tmp_path), None)
    for name in ("test.json", "test.csv"):
        (tmp_path / name).write_text("[]")
    error = refused(tmp_path)
    assert (error.path, error.name) == (str(tmp_path), "test")
    error = refused(tmp_path / "none.csv")
    assert isinstance(error.__cause__, FileNotFoundError) and error.path == str(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"a\n\xff")
    assert isinstance(refused(tmp_path / "latin.csv").__cause__, UnicodeDecodeError)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '{"q": "a: b", "answer": "1", "q": "c"}\n'),
        ("rows.jsonl", '{"q": {"a": 1, "a": 2}}\n'),
        ("rows.json", '[{"q": 1, "q": 2}]'),
        ("rows.json", '{"test": [{"q": 1}], "test": [{"q": 2}]}'),
    ],
)
def test_a_repeated_name_in_a_row_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    error = refused(tmp_path / name)
    assert error.problems == () or [place for place, _ in error.problems] == ["line 1"]


@pytest.mark.long
def test_problems_of_a_hundred_thousand_columns_are_found_quickly(tmp_path: Path) -> None:
    def problem(head: str) -> str:
        (tmp_path / "rows.csv").write_text(head)
        with pytest.raises(InContextError) as caught:
            load_rows(tmp_path / "rows.csv")
        return str(caught.value)

    assert "has no name" in problem("," * 100_000)
    assert "several columns have the name" in problem(",".join(["a", "b" * 1_000] * 50_000))
    assert len(problem(",".join(["a", "b" * 1_000] * 50_000))) < 2_000
