"""Embedders: valid results, cached requests, and errors of adapters with missing packages."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import (
    Embedder,
    EmbedderError,
    FastembedEmbedder,
    Memory,
    OpenAIEmbedder,
    SentenceTransformersEmbedder,
)
from agentkit_memory.database.engine import Database
from agentkit_memory.embedders import encoder as encoder_module
from agentkit_memory.embedders.contract import model_of, unit_vectors
from agentkit_memory.embedders.encoder import MAX_TEXT, Encoder
from agentkit_memory.embedders.store_embedders import embedder_named
from agentkit_memory.errors import EmbedderUnavailable
from agentkit_memory.process.embedder_calls import EmbedderCalls
from tests.cases import for_cases
from tests.loopback import Received, answering
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises
from tests.waiting import LONG


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path / "memory.db")
    yield opened
    opened.close()


@pytest.fixture
def calls() -> Iterator[EmbedderCalls]:
    opened = EmbedderCalls()
    yield opened
    opened.close()
    opened.close()


@pytest.fixture
def encoder(database: Database, calls: EmbedderCalls) -> Callable[..., Encoder]:
    return lambda embedder, pause=0.0: Encoder(embedder, database, calls, pause=pause)


# Results.


def test_vectors_have_length_1_for_any_scale() -> None:
    for scale in (1e-300, 1e-3, 1.0, 1e300):
        (vector,) = unit_vectors("m", [[3 * scale, -4 * scale]], ["text"])
        assert isinstance(vector, Sequence)
        assert [round(value, 6) for value in vector] == [0.6, -0.8]
    assert [*unit_vectors("m", [[0.0, 0.0]], ["text"])[0]] == [0.0, 0.0]


@for_cases(
    ("embedded", "value"),
    [
        (None, "NoneType"),
        ("vectors", "str"),
        ([[1.0]], 1),
        ([[1.0]] * 3, 3),
        ([[1.0], [1.0, 2.0]], "lengths"),
        ([[0.0] * 65_537] * 2, 65_537),
    ],
)
def test_a_result_without_a_vector_for_each_text_is_refused(embedded: object, value: str | int) -> None:
    with raises(EmbedderError, name="m", value=value):
        unit_vectors("m", embedded, ["one", "three"])


@for_cases(
    ("vector", "said"),
    [
        ([math.nan, 1.0], "contains NaN or infinity"),
        ([1.0, math.inf], "contains NaN or infinity"),
        ([1.0, -math.inf], "contains NaN or infinity"),
        ([], "its vector is empty"),
        (None, "expected a vector of numbers, got NoneType"),
        ("12", "expected a vector of numbers, got str"),
        ([1.0, "x"], "expected a vector of numbers (could not convert"),
        ([1.0, None], "expected a vector of numbers ("),
        ([10**400, 1.0], "expected a vector of numbers (int too large"),
        ([1.0, 2.0, 3.0], "its vector has 3 dimensions, stored vectors have 2"),
    ],
)
def test_the_problem_of_a_text_names_the_model_and_the_text(vector: Any, said: str) -> None:
    good, bad = unit_vectors("m", [[1.0, 0.0], vector], ["one", "three"], 2)
    assert [*good] == [1.0, 0.0]
    assert isinstance(bad, str)
    assert bad.startswith("model 'm', text 2 of 2 (5 characters): ")
    assert said in bad


def test_an_embedder_names_its_model() -> None:
    assert model_of(Words("mine")) == "mine"
    for name in (None, "", " ", 7, "x" * 256, "a\0b"):
        embedder = Words()
        embedder.model = name  # type: ignore[assignment]
        with pytest.raises(EmbedderError):
            model_of(embedder)
    with raises(EmbedderError, name="embedder", value="object"):
        model_of(object())  # type: ignore[arg-type]


# Requests.


def test_the_same_text_is_requested_once(encoder: Callable[..., Encoder], database: Database) -> None:
    words = Words()
    first = encoder(words)
    one, two, again = first(["one", "two", "one"])
    assert (one, words.asked) == (again, ["one", "two"])
    assert first(["two", "one"]) == [two, one]
    assert words.asked == ["one", "two"]
    assert encoder(words)(["one"]) == [one]  # another process: the vector is not stored yet
    assert words.asked == ["one", "two", "one"]


def test_another_process_reads_a_stored_vector(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra stripes")
    (docs / "b.md").write_text("zebra stripes")
    words = Words()
    with Memory(home, embedder=words) as memory, closing(Database.open(home / "memory.db")) as database:
        memory.ingest(docs)
        assert words.asked.count("zebra stripes") == 1
        encoder = Encoder(words, database, EmbedderCalls())
        (kept,) = encoder(["zebra stripes"])
        assert words.asked.count("zebra stripes") == 1
        fresh = encoder.questions(["zebra stripes"])[0]
        assert [*kept] == [*fresh]  # exactly


def test_batches_are_bounded_and_long_texts_are_cut(encoder: Callable[..., Encoder]) -> None:
    words = Words()
    texts = [f"text {number}" for number in range(600)] + ["long " * 10_000 + str(number) for number in range(60)]
    assert len(encoder(words)(texts)) == 660
    assert len(words.asked) == 660
    assert max(len(call) for call in words.calls) == 256
    assert max(sum(map(len, call)) for call in words.calls) <= 200_000
    assert max(map(len, words.asked)) == MAX_TEXT


def test_an_invalid_text_does_not_affect_other_texts(encoder: Callable[..., Encoder]) -> None:
    words = Words(wrong=lambda text: [math.nan] if "bad" in text else None)
    asking = encoder(words)
    texts = [f"text {number}" for number in range(40)]
    *_, bad = found = asking([*texts[:20], "bad", *texts[20:], "bad too"])
    assert [number for number, each in enumerate(found) if isinstance(each, str)] == [20, 41]
    assert "text 42 of 42 (7 characters): its vector contains NaN or infinity" in bad
    assert len(words.calls) == 1
    assert len(asking(texts)) == 40
    assert len(words.calls) == 1


def test_a_text_that_fails_the_complete_request_is_found(encoder: Callable[..., Encoder]) -> None:
    def refuse(text: str) -> None:
        if "bad" in text:
            raise ValueError("what is this?")

    words = Words(wrong=refuse)
    asking = encoder(words)
    texts = [f"text {number}" for number in range(100)]
    *good, bad = asking([*texts, "bad"])
    assert bad == "model 'words-1': could not embed 1 texts (ValueError: what is this?)"
    assert not any(isinstance(each, str) for each in good)
    assert len(words.calls) < 20
    asked = len(words.calls)
    assert len(asking(texts)) == 100
    assert len(words.calls) == asked


def test_unstored_vectors_are_removed_above_a_limit(
    encoder: Callable[..., Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_module, "_MAX_UNKEPT", 3)
    words = Words()
    asking = encoder(words)
    asking(["one", "two", "three", "four"])
    asking(["four"])
    asking(["one"])
    assert words.asked == ["one", "two", "three", "four", "one"]


def test_an_unavailable_model_is_not_called_again_for_a_moment(encoder: Callable[..., Encoder]) -> None:
    def away(text: str) -> None:
        raise ConnectionRefusedError("nobody there")

    words = Words(wrong=away)
    asking = encoder(words, LONG)
    for act in (asking, asking.questions, asking):
        with raises(EmbedderUnavailable, name="words-1"):
            act(["text"])
    assert len(words.calls) == 1
    again = encoder(words, 0.01)
    with pytest.raises(EmbedderUnavailable):
        again(["text"])
    words.wrong = None
    threading.Event().wait(0.02)
    assert len(again(["text"])) == 1


def test_a_question_that_cannot_be_embedded_is_a_typed_error(encoder: Callable[..., Encoder]) -> None:
    words = Words(wrong=lambda text: [math.inf] * 64)
    with pytest.raises(EmbedderError):
        encoder(words).questions(["question"])
    with pytest.raises(EmbedderError):
        encoder(words).measure()


def test_a_model_with_query_prompts_embeds_questions_differently_from_chunks(encoder: Callable[..., Encoder]) -> None:
    class Asymmetric(Words):
        def embed_query(self, texts: Sequence[str]) -> list[Sequence[float]]:
            return self.embed([f"query: {text}" for text in texts])

    model = Asymmetric()
    asking = encoder(model)
    asking(["text"])
    asking.questions(["text"])
    assert model.asked == ["text", "query: text"]


def test_async_embedders_run_in_one_loop(encoder: Callable[..., Encoder]) -> None:
    loops: set[asyncio.AbstractEventLoop] = set()

    class Async:
        model = "async"

        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            loops.add(asyncio.get_running_loop())
            await asyncio.sleep(0)
            if "bad" in texts:
                raise TimeoutError("too slow")
            return [[float(len(text)), 1.0] for text in texts]

    asking = encoder(Async())
    assert len(asking(["one"])[0]) == 2

    async def inside() -> int:
        return len(asking(["two"]))  # the loop of the caller is running

    assert asyncio.run(inside()) == 1
    assert len(loops) == 1
    with raises(EmbedderUnavailable, name="async"):
        asking(["bad"])


def test_a_change_of_the_size_of_vectors_is_refused(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra stripes")
    with Memory(home, embedder=Words(size=64)) as memory:
        memory.ingest(docs)
    (docs / "b.md").write_text("zebra crossing")
    with Memory(home, embedder=Words(size=32)) as memory:
        assert memory.ingest(docs).pending == 1
        (said,) = memory.admin.verify().problems.values()
        assert "its vector has 32 dimensions, stored vectors have 64; an embedder must use one model" in said
        found = memory.recall("zebra stripes")
        assert len(found) == 2  # by their words
        assert any("has 32 dimensions" in each for each in found.degraded)
        assert memory.admin.verify().ok


# Adapters.


@for_cases(
    ("name", "model"),
    [
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small"),
        ("openai:text-embedding-3-large@256", "openai:text-embedding-3-large@256"),
        ("fastembed:BAAI/bge-small-en-v1.5", "fastembed:BAAI/bge-small-en-v1.5"),
        ("sentence-transformers:intfloat/e5-small", "sentence-transformers:intfloat/e5-small"),
    ],
)
def test_an_adapter_can_be_named_by_its_model(name: str, model: str) -> None:
    found: Embedder = embedder_named(name)
    assert model_of(found) == model


@for_cases(
    ("name", "kind"),
    [
        ("fastembed", "fastembed"),
        ("fastembd:x", "fastembd"),
        ("sentence-transformer:x", "sentence-transformer"),
        ("openai:", "openai"),
        ("", ""),
    ],
)
def test_an_unknown_name_of_an_embedder_is_refused(name: str, kind: str) -> None:
    with raises(EmbedderError, name="embedder", value=kind):
        embedder_named(name)


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("fastembed", FastembedEmbedder, "dense"),
        ("openai", OpenAIEmbedder, "openai"),
        ("sentence_transformers", SentenceTransformersEmbedder, "sentence-transformers"),
    ],
)
def test_the_error_of_a_missing_package_names_the_extra(
    package: str, make: Callable[[], OpenAIEmbedder], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for act in (make().embed, make().embed_query):
        with pytest.raises(EmbedderUnavailable) as caught:
            act(["text"])
        assert f"agentkit-prompt-tree[{extra}]" in str(caught.value)


LOCAL = {
    "fastembed": """
class TextEmbedding:
    @classmethod
    def list_supported_models(cls):
        return [{"model": "BAAI/bge-small-en-v1.5"}, {"model": "away/model"}]
    def __init__(self, model_name, threads=None, local_files_only=False, cache_dir="-"):
        print("load", model_name, threads, local_files_only, cache_dir)
        if model_name.startswith("away"):
            raise ValueError("Could not load model away/model from any source.")
    def passage_embed(self, texts, batch_size):
        print("passages", texts, batch_size)
        return (array for array in numpy.ones((len(texts), 2), "float32"))
    def query_embed(self, texts):
        print("questions", texts)
        return (array for array in numpy.ones((len(texts), 2), "float32"))
""",
    "sentence_transformers": """
class SentenceTransformer:
    def __init__(self, name, device, local_files_only, trust_remote_code):
        print("load", name, device, local_files_only, trust_remote_code)
        if name.startswith("away"):
            raise OSError("We couldn't connect to 'https://huggingface.co'")
    def encode_document(self, texts, batch_size, show_progress_bar):
        print("passages", texts, batch_size)
        return numpy.ones((len(texts), 2), "float32")
    def encode_query(self, texts, batch_size, show_progress_bar):
        print("questions", texts)
        return numpy.ones((len(texts), 2), "float32")
""",
}


@pytest.fixture
def stand_in(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-in for a package that tests do not install because it contains a model and a runtime."""
    package = str(request.param)
    (tmp_path / f"{package}.py").write_text("import numpy\n" + LOCAL[package])
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    importlib.import_module(package)
    monkeypatch.setitem(sys.modules, package, sys.modules.pop(package))


@pytest.mark.parametrize("stand_in", ["fastembed"], indirect=True)
def test_fastembed_embeds_chunks_and_questions_and_is_loaded_once(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    embedder = FastembedEmbedder(cache_dir="models", threads=2, batch_size=8, offline=True)
    assert (embedder.embed(["a", "b"]), embedder.embed_query(["c"])) == ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]])
    assert capsys.readouterr().out.splitlines() == [
        "load BAAI/bge-small-en-v1.5 2 True models",
        "passages ['a', 'b'] 8",
        "questions ['c']",
    ]
    with raises(EmbedderUnavailable, name="fastembed:away/model", value="ValueError"):
        FastembedEmbedder("away/model").embed(["a"])
    assert capsys.readouterr().out == "load away/model None False -\n"
    for name in ("BAAI/bge-smal", "zzz"):
        with raises(EmbedderError, name=f"fastembed:{name}"):
            FastembedEmbedder(name).embed(["a"])


@pytest.mark.parametrize("stand_in", ["sentence_transformers"], indirect=True)
def test_sentence_transformers_embeds_chunks_and_questions_and_is_loaded_once(
    stand_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    embedder = SentenceTransformersEmbedder(Path("weights/minilm"), label="minilm", device="cpu", batch_size=8)
    assert embedder.model == "sentence-transformers:minilm"
    assert (embedder.embed(["a", "b"]), embedder.embed_query(["c"])) == ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]])
    assert capsys.readouterr().out.splitlines() == [
        "load weights/minilm cpu False False",
        "passages ['a', 'b'] 8",
        "questions ['c']",
    ]
    with raises(EmbedderUnavailable, name="sentence-transformers:away/model", value="OSError"):
        SentenceTransformersEmbedder("away/model", offline=True).embed(["a"])
    assert capsys.readouterr().out == "load away/model None True False\n"


ENDS = """
import sys, threading, time, types
from pathlib import Path

begun = threading.Event()

class Array(list):
    tolist = list

class SentenceTransformer:
    def __init__(self, *_, **__): pass
    def encode_document(self, texts, **_):
        print("begins", *texts, flush=True)
        begun.set()
        time.sleep(1)
        print("ends", *texts, flush=True)
        return [Array([1.0]) for _ in texts]

library = types.ModuleType("sentence_transformers")
library.SentenceTransformer = SentenceTransformer
sys.modules[library.__name__] = library
from agentkit.memory import SentenceTransformersEmbedder
from agentkit_memory.errors import StoreClosed

embedder = SentenceTransformersEmbedder(Path("model"), batch_size=2)
def embed():
    try:
        embedder.embed(["a", "bbb", "cc", "d"] * 10)
    except StoreClosed as error:
        print(error, flush=True)
threading.Thread(target=embed, daemon=True).start()
begun.wait()
"""


def test_the_end_of_a_process_waits_for_running_embeddings_and_starts_none() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=True)
    first, second, *rest = ended.stdout.splitlines()
    assert (first, second, rest) == (
        "begins bbb bbb",  # the longest texts are first
        "ends bbb bbb",
        ["model 'sentence-transformers:model': the process ends"],
    )
    assert ended.stderr == ""


@for_cases("size", [0, -1])
def test_a_batch_has_at_least_one_text(size: int) -> None:
    for make in (FastembedEmbedder, SentenceTransformersEmbedder):
        with raises(EmbedderError, name="batch_size"):
            make(batch_size=size)


@pytest.mark.parametrize("stand_in", ["sentence_transformers"], indirect=True)
def test_a_folder_is_loaded_only_as_a_path(
    stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner/model").mkdir(parents=True)
    with raises(EmbedderError, name="model", value="owner/model"):
        embedder_named("sentence-transformers:owner/model").embed(["a"])
    assert capsys.readouterr().out == ""
    assert SentenceTransformersEmbedder(Path("owner/model")).embed(["a"]) == [[1.0, 1.0]]
    for name in ("", ".", "..", "./m", "/m", "a/../m", "a\\m", "a\0", "a\n", "https://m/m", "~", "\uff0fm"):
        with pytest.raises(EmbedderError):
            embedder_named(f"sentence-transformers:{name}")


class Endpoint:
    """Embeddings endpoint on loopback; `act` returns a status and a body, or None to close the connection."""

    url: str

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.act: Callable[[dict[str, Any]], tuple[int, Any] | None] = self.vectors

    def answer(self, request: Received) -> tuple[int, dict[str, str], bytes] | None:
        body = json.loads(request.body)
        self.asked.append({**body, "path": request.path, "key": request.headers["authorization"]})
        reply = self.act(body)
        if reply is None:
            return None
        status, answer = reply
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return status, {"content-type": "application/json", "retry-after-ms": "1"}, sent

    @staticmethod
    def vectors(body: dict[str, Any]) -> tuple[int, Any]:
        rows = [
            {"object": "embedding", "index": number, "embedding": [float(len(text)), 1.0]}
            for number, text in enumerate(body["input"])
        ]
        return 200, {"object": "list", "model": body["model"], "data": rows[::-1], "usage": {}}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    served = Endpoint()
    with answering(served.answer) as address:
        served.url = f"{address}/v1"
        yield served


def test_an_endpoint_gets_one_request_and_its_results_are_sorted(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder("small", base_url=endpoint.url, dimensions=2)
    assert embedder.embed(["a", "", "ccc"]) == [[1.0, 1.0], [1.0, 1.0], [3.0, 1.0]]
    assert embedder.embed_query(["dd"]) == [[2.0, 1.0]]
    first, second = endpoint.asked
    assert (first["path"], first["model"], first["input"], first["dimensions"]) == (
        "/v1/embeddings",
        "small",
        ["a", " ", "ccc"],
        2,
    )
    assert second["input"] == ["dd"]
    assert embedder.model == "openai:small@2"


def test_a_store_can_use_an_endpoint(endpoint: Endpoint, home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home, embedder=OpenAIEmbedder("small", base_url=endpoint.url)) as memory:
        memory.ingest(docs)
        assert memory.model == "openai:small"
        assert len(memory.recall("horse", policy="dense")) == 1
        endpoint.act = lambda body: (500, {"error": {"message": "on fire"}})
        found = memory.recall("zebra")
        assert len(found) == 1
        assert any("on fire" in each and "searched with BM25 only" in each for each in found.degraded)


def test_a_temporary_failure_is_retried(endpoint: Endpoint) -> None:
    troubles = [(429, {"error": {"message": "slow down"}}), (503, {}), (200, None)]

    def recover(body: dict[str, Any]) -> tuple[int, Any]:
        status, answer = troubles.pop(0)
        return (status, answer) if status != 200 else Endpoint.vectors(body)

    endpoint.act = recover
    assert OpenAIEmbedder("m", base_url=endpoint.url).embed(["a"]) == [[1.0, 1.0]]
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((500, {"error": {"message": "on fire"}}), EmbedderUnavailable, "failed (Error code: 500"),
        ((429, {"error": {"message": "slow down"}}), EmbedderUnavailable, "slow down"),
        ((401, {"error": {"message": "bad key secret-key-1"}}), EmbedderUnavailable, "bad key ***"),
        ((404, {"error": {"message": "no such model"}}), EmbedderUnavailable, "check the name of the model"),
        ((400, {"error": {"message": "too many tokens"}}), EmbedderError, "too many tokens"),
        ((200, {"data": []}), EmbedderError, "the answer is not one vector for each of 1 texts"),
        ((200, {"data": None}), EmbedderError, "the answer is not one vector for each of 1 texts"),
        ((200, b"<html>"), EmbedderError, "the answer is not one vector for each of 1 texts"),
        ((200, {"data": [{"index": 1, "embedding": [1.0]}]}), EmbedderError, "is not one vector for each"),
    ],
)
def test_an_unavailable_endpoint_and_a_refused_text_are_different_errors(
    endpoint: Endpoint, answer: tuple[int, Any], kind: type[EmbedderError], said: str
) -> None:
    endpoint.act = lambda body: answer
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, api_key="secret-key-1", max_retries=1)
    with pytest.raises(EmbedderError) as raised:
        embedder.embed(["a"])
    assert type(raised.value) is kind
    assert said in str(raised.value)
    assert "model 'openai:m'" in str(raised.value)
    assert endpoint.url.split("/")[2] in str(raised.value)
    assert "secret-key-1" not in str(raised.value)


def test_an_unreachable_or_slow_endpoint_is_a_typed_error(endpoint: Endpoint) -> None:
    endpoint.act = lambda body: None
    with raises(EmbedderUnavailable, name="openai:m"):
        OpenAIEmbedder("m", base_url=endpoint.url, max_retries=0).embed(["a"])
    release = threading.Event()

    def dawdle(body: dict[str, Any]) -> tuple[int, Any]:
        release.wait(LONG)
        return 500, {}

    endpoint.act = dawdle
    with raises(EmbedderUnavailable, name="openai:m"):
        OpenAIEmbedder("m", base_url=endpoint.url, question_timeout=0.1).embed_query(["a"])
    release.set()


def test_a_key_and_an_address_are_read_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with raises(EmbedderUnavailable, name="OPENAI_API_KEY"):
        OpenAIEmbedder("m").embed(["a"])
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with raises(EmbedderError, name="base_url"):
        OpenAIEmbedder("m").embed(["a"])
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", " key-of-mine ")
    OpenAIEmbedder("m").embed(["a"])
    assert endpoint.asked[0]["key"] == "Bearer key-of-mine"


def test_a_custom_client_is_used(endpoint: Endpoint) -> None:
    from openai import OpenAI

    with OpenAI(base_url=endpoint.url, api_key="mine") as client:
        assert OpenAIEmbedder("m", client=client).embed(["a"]) == [[1.0, 1.0]]
    assert endpoint.asked[0]["key"] == "Bearer mine"


def test_local_models_of_real_packages_are_unavailable_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tried = 0
    for package, embedder in (
        ("fastembed", FastembedEmbedder(cache_dir=tmp_path, offline=True)),
        ("sentence_transformers", SentenceTransformersEmbedder("no-such/model", offline=True)),
    ):
        if importlib.util.find_spec(package) is not None:
            tried += 1
            with pytest.raises(EmbedderUnavailable):
                embedder.embed(["text"])
    if not tried:
        pytest.skip("needs the extra `dense` or `sentence-transformers`")
