"""Rows that an endpoint refuses: they hide no other row, in the first run and in later runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit import OpenAIModel
from agentkit.models import ModelAuthError, ModelError, ModelRequestError
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import EvaluationFailed
from tests.model_evaluation.evaluation_servers import answers, texts_of
from tests.servers import Asked, ChatServer, Handler, Response, sends

CFG = {
    "reader_cfg": {"input_columns": ["question"], "output_column": "answer"},
    "infer_cfg": {"prompt_template": {"template": "{question}"}},
}
ROWS = [{"question": f"q{number}", "answer": "x"} for number in range(40)]


def refusing(*numbers: int, status: int = 400) -> Handler:
    """Refuse these rows, and answer the others."""
    refused, good = sends({"error": {"message": "no"}}, status), answers(lambda _: "x")

    def handler(asked: Asked) -> Response:
        return (refused if int(texts_of(asked)[-1][1:]) in numbers else good)(asked)

    return handler


def model(server: ChatServer, name: str, handler: Handler) -> OpenAIModel:
    server.on(name, handler)
    return OpenAIModel(name, base_url=server.url, max_retries=0)


@pytest.mark.parametrize("refused", [(0,), (7,), (0, 1, 2), (39,)])
async def test_a_refused_row_is_named_in_every_run(
    server: ChatServer, tmp_path: Path, refused: tuple[int, ...]
) -> None:
    asked = model(server, f"refuses {refused}", refusing(*refused))
    for run, concurrency in enumerate((1, 16, 1)):
        with pytest.raises(EvaluationFailed) as caught:
            await evaluation.run(CFG, ROWS, asked, score="exact", out=tmp_path / "kept.jsonl", concurrency=concurrency)
        found = caught.value.evaluation
        assert tuple(caught.value.failures) == refused
        assert (len(found.rows), found.score, found.reused) == (40 - len(refused), 1.0, 40 - len(refused) if run else 0)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, ModelRequestError), (404, ModelRequestError), (401, ModelAuthError)]
)
async def test_an_endpoint_that_refuses_every_row_ends_the_run_and_hides_no_stored_answer(
    server: ChatServer, tmp_path: Path, status: int, kind: type[ModelError]
) -> None:
    everything = range(40)
    asked = model(server, f"all {status}", refusing(*everything, status=status))
    with pytest.raises(kind):
        await evaluation.run(CFG, ROWS, asked, score="exact", concurrency=1)
    assert len(server.to(asked.name)) < len(ROWS)
    server.on(asked.name, refusing(*range(30)))
    for handler in (refusing(*range(30)), refusing(*everything, status=status)):
        server.on(asked.name, handler)
        reversed_rows = ROWS[::-1]
        with pytest.raises(EvaluationFailed) as caught:
            await evaluation.run(CFG, reversed_rows, asked, score="exact", out=tmp_path / "kept.jsonl", concurrency=1)
        assert [row.row for row in caught.value.evaluation.rows] == [*range(10)]
        assert [*caught.value.failures] == [*range(10, 40)]


async def test_stored_rows_are_found_after_rows_without_a_connection(server: ChatServer, tmp_path: Path) -> None:
    asked = model(server, "leaves", refusing(*range(10)))
    out = tmp_path / "kept.jsonl"
    with pytest.raises(EvaluationFailed):
        await evaluation.run(CFG, ROWS, asked, score="exact", out=out, concurrency=1)
    gone = OpenAIModel("leaves", base_url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(EvaluationFailed) as caught:
        await evaluation.run(CFG, ROWS, gone, score="exact", out=out, concurrency=1, retries=0)
    assert (caught.value.evaluation.reused, [*caught.value.failures]) == (30, [*range(10)])


async def test_a_refused_single_row_is_the_error_of_the_endpoint(server: ChatServer) -> None:
    with pytest.raises(ModelRequestError):
        await evaluation.run(CFG, ROWS[:1], model(server, "one", refusing(0)), score="exact")
