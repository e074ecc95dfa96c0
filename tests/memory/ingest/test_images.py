"""Images as items: by their alt text, and by their pixels if the embedder reads both; prompts show them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkit import Agent, Chain, Layers, ScriptedModel
from agentkit.memory import IngestError, IngestOptions, Memory, RecallFilter, Scope
from agentkit.memory.recall import POLICIES
from agentkit.prompts import Document, Image, MemoPrompt, PromptContext
from agentkit.testing import StoreProbe
from agentkit_memory.recall.candidates import ScoredItem
from tests.raising import raises

RED, GREEN, BLUE = (250, 5, 5), (5, 250, 5), (5, 5, 250)
COLOURS = {"red": RED, "green": GREEN, "blue": BLUE}


def png(colour: tuple[int, int, int], size: int = 4) -> bytes:
    def block(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + block(b"IHDR", head) + block(b"IDAT", zlib.compress(rows)) + block(b"IEND", b"")


class Colours:
    """Embedder with the mean of the pixels of an image, and the mean of the colours in a text."""

    model = "colours"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        named = [[COLOURS[word] for word in each.lower().split() if word in COLOURS] or [(1, 1, 1)] for each in texts]
        return [np.mean(colours, axis=0).tolist() for colours in named]

    def embed_images(self, images: Sequence[Image]) -> list[list[float]]:
        return [self._mean(image.read()) for image in images]

    @staticmethod
    def _mean(content: bytes) -> list[float]:
        size = struct.unpack(">I", content[16:20])[0]
        data = content[content.index(b"IDAT") + 4 : content.index(b"IEND") - 8]
        rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(size, 1 + 3 * size)
        pixels: list[float] = rows[:, 1:].reshape(-1, 3).mean(axis=0).tolist()
        return pixels


def image(colour: tuple[int, int, int], alt: str, **fields: Any) -> Document:
    return Document(alt, image=Image(png(colour)), **fields)


def count(memory: Memory, table: str) -> int:
    return len(StoreProbe(memory).dump()[table])


def test_an_image_is_found_by_its_alt_text_and_shown_as_media(either: Memory) -> None:
    either.documents.add("Bicycles have two wheels.", source="bikes.md")
    stored = either.documents.add(
        image(RED, "A bicycle leaning against a door"), source="bike.png", metadata={"year": 2024}
    )
    assert (stored.chunks, stored.metadata) == (1, {"year": 2024})
    again = image(RED, "A bicycle leaning against a door", source="bike.png", metadata={"year": 2024})
    assert either.documents.add(again) == stored
    for _ in range(2):  # while it waits for the index, and from the index
        (found,) = either.recall("bicycle at the door", limit=1).documents
        assert (found.text, found.source) == ("A bicycle leaning against a door", "bike.png")
        assert found.image is not None and (found.image.read(), found.image.mime) == (png(RED), "image/png")
        either.worker().drain()
    pictures = either.recall("bicycle", where=RecallFilter(kinds=["image"], metadata={"year": 2024})).documents
    assert [each.source for each in pictures] == ["bike.png"]
    assert all(each.image is None for each in either.recall("bicycle", where=RecallFilter(kinds=["chunk"])).documents)
    assert either.documents.chunks("bike.png")[0].image == found.image
    layers = Layers(before_input=MemoPrompt())
    sent = Chain(ScriptedModel(["ok"]), layers).compose(PromptContext(user_input="Which door?", documents=[found]))
    assert sent.to_openai()["messages"][-1]["content"][1]["type"] == "image_url"
    assert "A bicycle leaning against a door\n[image: " in sent.to_text()
    (usage,) = either.admin.usage()
    assert (usage.documents, usage.image_bytes) == (2, len(png(RED)))
    assert either.documents.forget("bike.png") and count(either, "images") == 0


def test_an_agent_sends_a_recalled_image_and_its_journal_can_be_resumed(memory: Memory) -> None:
    memory.documents.add(image(BLUE, "The blue door of the workshop"), source="door.png")
    agent = Agent(ScriptedModel(["It is blue."]), memory=memory)
    result = agent.run_sync("Which colour is the door of the workshop?")
    assert png(BLUE) in [each.image.read() for each in result.composition.context.documents if each.image is not None]
    again = agent.resume_sync(result.journal)
    assert again.output == "It is blue."


def test_an_image_that_exceeds_the_token_limit_does_not_hide_its_duplicate(memory: Memory) -> None:
    long_alt = "green door of the workshop " + "in detail, " * 30
    memory.documents.add(image(GREEN, long_alt), source="long.png")
    memory.documents.add(image(GREEN, "green shed"), source="short.png")
    policy = replace(POLICIES["default"], tokens=20)
    recall = memory.recall("Which green door does the workshop have?", policy=policy)
    first = recall.explain()[0]
    assert first.text.startswith("green door of the workshop") and "tokens" in first.why
    assert [found.source for found in recall.documents] == ["short.png"]


def test_images_without_a_source_are_named_by_their_content(memory: Memory, tmp_path: Path) -> None:
    red, green, again = (memory.documents.add(image(colour, "a photo")) for colour in (RED, GREEN, RED))
    assert red.source == again.source != green.source
    assert len(memory.documents.list()) == 2
    with raises(IngestError, name="path"):
        memory.documents.add(Document("a photo", image=Image(tmp_path / "missing.png")))


def test_one_space_contains_images_and_texts(home: Path) -> None:
    with Memory(home, embedder=Colours()) as memory:
        for number, colour in enumerate((RED, GREEN, BLUE)):
            memory.documents.add(image(colour, f"holiday photo {number}"), source=f"{number}.png")
            memory.documents.add(image(colour, f"a copy of photo {number}"), source=f"copy{number}.png")
        memory.documents.add("We painted the fence green", source="fence.md")
        memory.worker().drain()
        assert count(memory, "embeddings") == 4  # the same image has one vector
        found = memory.recall("something green", limit=2, policy="dense").documents
        assert {each.source.removeprefix("copy") for each in found} == {"1.png", "fence.md"}  # and is shown once
        assert memory.admin.verify().ok
        assert memory.admin.reembed(Other(), gate=None).flipped
        assert memory.recall("something blue", limit=1, policy="dense").documents[0].source in ("2.png", "copy2.png")
        before = count(memory, "embeddings")
        memory.documents.forget("2.png")
        memory.documents.forget("copy2.png")
        assert count(memory, "embeddings") < before


class Other(Colours):
    model = "other-colours"


class OfTexts:
    model = "texts"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return Colours().embed(texts)


class Broken(Colours):
    model = "broken"

    def embed_images(self, images: Sequence[Image]) -> list[list[float]]:
        if any(each.read() == png(GREEN) for each in images):
            raise ValueError("cannot decode")
        return super().embed_images(images)


def test_with_an_embedder_of_texts_an_image_has_the_vector_of_its_alt_text(home: Path) -> None:
    with Memory(home, embedder=OfTexts()) as memory:
        memory.documents.add(image(GREEN, "a red ball"), source="ball.png")
        memory.documents.add(image(RED, "a blue ball"), source="other.png")
        memory.worker().drain()
        assert memory.recall("red", limit=1, policy="dense").documents[0].source == "ball.png"
        assert memory.admin.verify().ok


def test_an_image_that_cannot_be_embedded_is_found_by_words_and_blocks_no_other(home: Path) -> None:
    with Memory(home, embedder=Broken()) as memory:
        for name, colour in COLOURS.items():
            memory.documents.add(image(colour, f"photo of {name} paint"), source=f"{name}.png")
        memory.documents.add("A text about paint", source="text.md")
        memory.worker().drain()
        (problem,) = memory.admin.verify().problems.values()
        assert "could not embed 1 images (ValueError: cannot decode)" in problem
        assert "green.png" in [each.source for each in memory.recall("green paint", limit=2).documents]


def test_copies_of_an_image_do_not_displace_other_images(memory: Memory) -> None:
    for number in range(40):
        memory.documents.add(image(RED, f"photo of the harbour {number}"), source=f"{number}.png")
    memory.documents.add(image(BLUE, "photo of the harbour"), source="blue.png")
    memory.documents.add("The harbour is old; a photo of it hangs in the hall of the town.", source="harbour.md")
    memory.worker().drain()
    found = memory.recall("photo of the harbour", limit=3).documents
    assert {each.source for each in found} >= {"blue.png", "harbour.md"} and len(found) == 3


def test_a_recall_with_a_reranker_reads_the_hashes_of_images_once(memory: Memory) -> None:
    class Reverse:
        name = "reverse"

        def rerank(self, question: str, candidates: Sequence[ScoredItem]) -> Sequence[float]:
            return [*range(len(candidates))]

    for number, colour in enumerate((RED, RED, BLUE)):
        memory.documents.add(image(colour, "a square"), source=str(number))
    policy = replace(POLICIES["default"], reranker=Reverse())
    with StoreProbe(memory).statements() as statements:
        assert len(memory.recall("a square", policy=policy).documents) == 2
    assert len([each for each in statements if each.startswith("SELECT items.id, items.content_hash ")]) == 1


def test_images_of_a_folder_are_stored_with_the_alt_texts_that_a_function_returns(either: Memory, docs: Path) -> None:
    for name, colour in COLOURS.items():
        (docs / f"{name}.png").write_bytes(png(colour))
    (docs / "a.md").write_text("Paint dries slowly.")
    assert len(either.ingest(docs).added) == 1  # without alt texts, images are omitted
    alts = {"red.png": "crimson paint", "green.png": "emerald paint"}
    options = IngestOptions(alt_text=lambda path: alts.get(path.name))
    report = either.ingest(docs, options=options)
    assert [Path(each).name for each in report.added] == ["green.png", "red.png"]
    assert "blue.png: is an image, recalled by its alt text: expected text" in str(report.errors[0])
    assert [Path(each.source).name for each in either.recall("emerald").documents] == ["green.png"]
    alts |= {"blue.png": "azure paint", "red.png": "scarlet paint"}
    report = either.ingest(docs, options=options)
    assert ([len(each) for each in (report.added, report.changed, report.unchanged)]) == [1, 1, 2]
    assert not either.recall("crimson").documents and len(either.recall("scarlet").documents) == 1
    (docs / "red.png").write_bytes(png(RED, 5))
    assert len(either.ingest(docs, options=options).changed) == 1
    shown = either.recall("scarlet").documents[0].image
    assert shown is not None and shown.read() == png(RED, 5)
    (docs / "red.png").unlink()
    assert len(either.ingest(docs, options=options).removed) == 1
    assert count(either, "images") == 2 and either.admin.verify().ok


def failing(path: Path) -> str:
    raise OSError("no model")


@pytest.mark.parametrize(
    ("content", "options", "name", "value"),
    [
        (png(RED), IngestOptions(), "alt_text", None),
        (png(RED), IngestOptions(alt_text=failing), "alt_text", "OSError"),
        (png(RED), IngestOptions(alt_text=lambda path: " "), "alt_text", None),
        (png(RED), IngestOptions(alt_text=lambda path: "long " * 2000), "alt_text", 10_000),
        (b"\0" * 10_000_001, IngestOptions(alt_text=str), "size", None),
        (b"hello", IngestOptions(alt_text=lambda path: "x"), "format", None),
        (b"", IngestOptions(alt_text=lambda path: "x"), "format", None),
    ],
)
def test_an_image_file_that_cannot_be_stored_is_reported(
    memory: Memory, docs: Path, content: bytes, options: IngestOptions, name: str, value: str | int | None
) -> None:
    (docs / "a.png").write_bytes(content)
    report = memory.ingest([docs / "a.png"], options=options)
    with raises(IngestError, name=name, value=value):
        raise report.errors[0]
    assert not memory.documents.list()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (Image(png(RED)), None),
        (png(RED), "alt_text"),
        (Document("", image=Image(png(RED))), "alt_text"),
        (Document("x", image=Image(b"hello")), "format"),
        (Document("x", image=Image(Path("nowhere.png"))), "path"),
        (Document("x" * 9000, image=Image(png(RED))), "alt_text"),
    ],
)
def test_an_image_that_cannot_be_stored_is_refused(memory: Memory, content: Any, name: str | None) -> None:
    with raises(IngestError, name=name):
        memory.documents.add(content, source="a.png")
    assert not memory.documents.list()
    with raises(IngestError, name="alt_text", source="IngestOptions"):
        IngestOptions(alt_text="x")  # type: ignore[arg-type]


def test_a_url_is_stored_unchanged_and_a_document_can_become_an_image_and_a_text(memory: Memory) -> None:
    address = "https://example.org/door.png"
    memory.documents.add(Document("The door", image=Image(address)), source="door")
    (found,) = memory.recall("door").documents
    assert found.image is not None and str(found.image.source) == address
    memory.documents.add("A text about a door.", source="door")
    assert memory.recall("door").documents[0].image is None and count(memory, "images") == 0
    memory.documents.add(image(RED, "The door"), source="door")
    assert memory.recall("door").documents[0].image is not None
    memory.worker().drain()
    assert memory.admin.verify().ok and len(memory.recall("door")) == 1


def test_images_are_backed_up_exported_and_erased(home: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        ada = memory.within(Scope("local", user="ada"))
        ada.documents.add(image(RED, "Ada at the sea"), source="ada.png")
        memory.admin.backup(tmp_path / "backup")
        memory.admin.export(tmp_path / "export")
        for name in ("backup", "export"):
            with Memory(tmp_path / f"from-{name}") as copy:
                copy.admin.restore(tmp_path / name)
                shown = copy.within(Scope("local", user="ada")).recall("sea").documents[0].image
                assert shown is not None and shown.read() == png(RED)
        proof = memory.erase(Scope("local", user="ada"))
        assert proof.complete and proof.found["images"] == 0 and count(memory, "images") == 0
        assert proof.compacted and png(RED) not in (home / "memory.db").read_bytes()
