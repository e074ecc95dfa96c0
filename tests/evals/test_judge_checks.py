"""A judge is compared with labels of people: agreement, kappa, the confusion table and intervals."""

from __future__ import annotations

import itertools
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agentkit import ScriptedModel
from agentkit.evals import EvaluationError, JudgeError, LabelledRow, RowsError, check_judge, check_judge_sync, judge
from tests.raising import raises


def judging(levels: int | None = 2) -> Any:
    """Return a judge whose verdict is the last word of the answer."""

    def verdict(composition: Any) -> Any:
        lines = composition.messages[1].text.split("The answer to judge:")[1].splitlines()
        word = lines[3].split()[-1]
        return {"reason": word, "passed": word == "pass", "level": int(word) if word.isdecimal() else word, "value": 1}

    return judge(ScriptedModel.repeat(verdict), "Be polite.", levels=levels)


def labelled(pairs: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"input": "Hi", "answer": f"so {verdict}", "label": label} for label, verdict in pairs]


def test_a_judge_is_compared_with_labels() -> None:
    pairs = [(True, "pass")] * 20 + [(True, "fail")] * 5 + [(False, "pass")] * 10 + [(False, "fail")] * 15
    check = check_judge_sync(judging(), labelled(pairs))
    # Example of Wikipedia's article about Cohen's kappa.
    assert check.agreement.mean == pytest.approx(0.7) and check.kappa.mean == pytest.approx(0.4)
    assert check.confusion == [[15, 10], [5, 20]] and check.names == ["fail", "pass"]
    assert check.disagreements == [str(number) for number in range(21, 36)]
    assert check.kappa.low < 0.4 < check.kappa.high and check.weighted_kappa == check.kappa
    assert check.reasons["21"] == "fail"
    lines = [line.split() for line in str(check).splitlines()]
    assert lines[-2:] == [["fail", "15", "10"], ["pass", "5", "20"]] and lines[2][:2] == ["kappa", "0.400"]


def test_levels_of_a_scale_are_compared_with_weights() -> None:
    draw = random.Random(5)
    for levels in (3, 5, 7):
        pairs = [(draw.randint(1, levels), draw.randint(1, levels)) for _ in range(30)]
        check = check_judge_sync(judging(levels), labelled(pairs))
        for is_weighted, interval in ((False, check.kappa), (True, check.weighted_kappa)):
            assert interval.mean == pytest.approx(float(exact_kappa(pairs, is_weighted))), (levels, is_weighted)
            assert -1 <= interval.low <= interval.mean <= interval.high <= 1
        assert check.disagreements[0] in {
            str(row) for row, (a, b) in enumerate(pairs, 1) if abs(a - b) == max(abs(a - b) for a, b in pairs)
        }


def exact_kappa(pairs: list[tuple[int, int]], is_weighted: bool) -> Fraction:
    """Return kappa by its definition: the ratio of observed and expected disagreement of all pairs of rows."""

    def distance(a: int, b: int) -> int:
        return (a - b) ** 2 if is_weighted else int(a != b)

    observed = Fraction(sum(distance(a, b) for a, b in pairs), len(pairs))
    expected = Fraction(sum(distance(a, b) for (a, _), (_, b) in itertools.product(pairs, pairs)), len(pairs) ** 2)
    return 1 - observed / expected


def test_the_interval_of_kappa_is_the_interval_of_all_resamples() -> None:
    pairs = [(1, 1), (1, 2), (2, 2), (3, 2), (3, 3)]
    values = []
    for resample in itertools.product(pairs, repeat=len(pairs)):
        observed = sum(a != b for a, b in resample)
        expected = sum(a != b for (a, _), (_, b) in itertools.product(resample, resample))
        if expected:
            values.append(1 - observed * len(pairs) / expected)
    interval = check_judge_sync(judging(3), labelled(pairs)).kappa
    for bound, share in ((interval.low, 0.025), (interval.high, 0.975)):
        below = sum(value < bound - 1e-9 for value in values) / len(values)
        at_most = sum(value <= bound + 1e-9 for value in values) / len(values)
        assert below - 0.01 <= share <= at_most + 0.01, (bound, below, at_most)


def test_kappa_is_undefined_if_labels_and_verdicts_are_one_level() -> None:
    check = check_judge_sync(judging(), labelled([(1, "pass")] * 3))
    assert check.agreement == (1, 1, 1) and all(math.isnan(value) for value in check.kappa) and str(check)


def test_labels_are_read_from_files_and_all_problems_are_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("input,answer,label,id\nHi,pass,True,a\nHi,pass,fail,b\nHi,fail,0,c\n")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, labelled([(True, "pass"), ("pass", "pass")]))))
    assert list(check_judge_sync(judging(), tmp_path / "rows.csv").verdicts.values()) == [(1, 1), (0, 1), (0, 0)]
    assert check_judge_sync(judging(), tmp_path / "rows.jsonl").agreement.mean == 1
    rows: list[Any] = [
        {"input": "Hi", "answer": "x", "label": "maybe"},
        {"input": "Hi", "answer": "x"},
        {"input": "Hi", "label": True},
        {"input": "Hi", "answer": "x", "label": 2},
        {"input": "Hi", "answer": "x", "label": 0, "lable": 1},
        LabelledRow(input="Hi", answer="x", label="good"),
    ]
    with pytest.raises(RowsError) as caught:
        check_judge_sync(judging(), rows)
    places = ["row 1.label", "row 2.label", "row 3.answer", "row 4.label", "row 5.lable", "row 6.label"]
    assert [place for place, _ in caught.value.problems] == places
    for label in (0, 6, True, "x", "2.0"):
        with pytest.raises(RowsError):
            print(label, check_judge_sync(judging(5), labelled([(label, 1)])))


async def test_a_row_without_a_verdict_does_not_stop_the_other_rows() -> None:
    check = await check_judge(judging(3), labelled([(1, 1), (2, "nonsense"), (3, 3)]))
    assert list(check.verdicts) == ["1", "3"] and isinstance(check.problems["2"], JudgeError)
    assert "1 rows have no verdict" in str(check)
    with pytest.raises(JudgeError):
        await check_judge(judging(3), labelled([(2, "nonsense")]))


def test_invalid_arguments_are_refused_before_any_request() -> None:
    rows = labelled([(True, "pass")])
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("judge", lambda row, result: 1, {}),
        ("judge", judging(None), {}),
        ("concurrency", judging(), {"concurrency": 0}),
        ("rows", judging(), {"rows": []}),
    ]
    for name, score, options in cases:
        with raises(EvaluationError, name=name):
            print(score, check_judge_sync(score, **{"rows": rows, **options}))
