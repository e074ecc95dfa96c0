"""Media parts: ids from the hash of the content, names in alt texts, and sources in the stored form."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentkit.prompts import (
    Audio,
    File,
    Image,
    Media,
    MediaError,
    Message,
    PromptContext,
    Text,
    TextPrompt,
    Url,
    UserInput,
    UserInputPrompt,
    Video,
    replace_markers,
)
from agentkit_prompts.context.messages import MESSAGES
from tests.prompts.laws import law


def test_the_id_is_a_hash_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"picture")
    assert Image(path).id == Image(b"picture").id == Image(bytearray(b"picture")).id == Image(str(path)).id  # type: ignore[arg-type]
    assert Image(path).id != Image(b"another").id


def test_a_file_that_changed_has_another_id(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"one")
    before = Image(path).id
    path.write_bytes(b"other")
    assert Image(path).id != before


def test_bytes_that_look_like_a_url_are_not_a_url() -> None:
    assert Image("https://example.org/a.png").id != Image(b"https://example.org/a.png").id


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("https://example.org/a.png", Url),
        ("data:image/png;base64,YQ==", Url),
        ("s3://bucket/key", Url),
        ("a.png", Path),
        ("./a:b.png", Path),
        ("/abs/a.png", Path),
        ("", Path),
    ],
)
def test_a_text_source_is_a_url_when_it_opens_with_a_scheme(source: str, kind: type) -> None:
    assert isinstance(Image(source).source, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["http://", "https://[::1/", "http://a b", "http://\ud800"])
def test_an_invalid_url_is_refused(address: str) -> None:
    with pytest.raises(MediaError) as caught:
        Image(address)  # type: ignore[arg-type]
    assert (caught.value.name, caught.value.value) == ("source", address)


@pytest.mark.parametrize("source", [None, 5, object(), ["a"]])
def test_other_sources_are_refused(source: object) -> None:
    for make, name in ((Image, "source"), (Text, "text")):
        with pytest.raises(MediaError) as caught:
            make(source)  # type: ignore[arg-type]
        assert caught.value.name == name


def test_reading_a_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    missing = Image(tmp_path / "missing.png")
    ctx = PromptContext(user_input=UserInput([missing]))
    for read in (lambda: UserInputPrompt().format_2_multimodal(ctx), missing.read):
        with pytest.raises(MediaError) as caught:
            read()
        assert caught.value.path == str(tmp_path / "missing.png")


@pytest.mark.parametrize("name", [".", "a\0b", "\ud800"])
def test_an_unreadable_path_is_a_media_error(tmp_path: Path, name: str) -> None:
    part = Image(tmp_path / name)
    for read in (lambda: part.id, part.read):
        with pytest.raises(MediaError) as caught:
            read()
        assert caught.value.path == str(part.source)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
def test_a_pipe_is_refused_without_a_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = Image(tmp_path / "pipe")
    for read in (lambda: pipe.id, pipe.read):
        with pytest.raises(MediaError) as caught:
            read()
        assert caught.value.path == str(tmp_path / "pipe")


def test_a_url_is_not_downloaded() -> None:
    with pytest.raises(MediaError) as caught:
        Image("https://example.org/a.png").read()  # type: ignore[arg-type]
    assert caught.value.value == "https://example.org/a.png"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image(Path("photo.jpg")), "image/jpeg"),
        (Image(Path("photo.jpg"), name="chart"), "image/jpeg"),
        (Image(Path("photo"), name="chart.gif"), "image/gif"),
        (Image(b"x"), "image/png"),
        (Image(b"x", media_type="image/webp"), "image/webp"),
        (Image("https://example.org/photo.jpg?size=2"), "image/jpeg"),  # type: ignore[arg-type]
        (Image("data:image/gif;base64,YQ=="), "image/gif"),  # type: ignore[arg-type]
        (File(b"x"), "application/octet-stream"),
        (File(Path("a.pdf")), "application/pdf"),
        (Audio(b"x"), "audio/wav"),
        (Video(b"x"), "video/mp4"),
    ],
    ids=repr,
)
def test_the_media_type_is_guessed_from_the_name(part: Media, expected: str) -> None:
    assert part.mime == expected


@law
@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_no_name_ends_the_alt_text(name: str) -> None:
    alt = Image(b"x", name=name).alt
    assert alt.startswith("[image: ")
    assert alt.endswith("]")
    inner = alt[len("[image: ") : -1]
    assert not set(inner) & set("[]<>|\n\r{}")
    assert 0 < len(inner) <= 80


def test_the_alt_text_contains_the_name_of_the_file() -> None:
    assert Image(Path("dir/cat.png")).alt == "[image: cat.png]"
    assert Image("https://example.org/pets/cat.png?x=1").alt == "[image: cat.png]"  # type: ignore[arg-type]
    assert Image("https://example.org").alt == "[image: example.org]"  # type: ignore[arg-type]
    assert Image(b"x", name="my cat.png").alt == "[image: my cat.png]"
    assert "base64" not in Image("data:image/png;base64,YQ==").alt  # type: ignore[arg-type]


def test_known_markers_are_replaced_and_unknown_markers_stay() -> None:
    one, other = Image(b"1"), Video(b"2")
    text = f"a {one.marker} b {other.marker} c {one.marker}"
    assert replace_markers(text, {one.id: "ONE"}) == f"a ONE b {other.marker} c ONE"
    assert replace_markers("<|media:image:short|>", {"short": "x"}) == "<|media:image:short|>"


parts = st.one_of(
    st.builds(Text, st.text(max_size=20)),
    *(
        st.builds(kind, st.binary(max_size=30) | st.sampled_from([Path("a/b.png"), Url("https://example.org/a")]))
        for kind in (Image, Audio, Video, File)
    ),
)
stored = st.builds(Message, st.just("user"), st.text(max_size=20) | st.lists(parts, max_size=4).map(tuple))


@law
@given(stored)
def test_a_stored_message_is_equal_after_reading(message: Message) -> None:
    for part in message.parts:
        if isinstance(part, Media) and not isinstance(part.source, Path):
            _ = part.id
    text = MESSAGES.dump_json(message)
    assert MESSAGES.validate_json(text) == message
    assert b'"_id"' not in text


def test_bytes_that_look_like_a_path_stay_bytes() -> None:
    message = Message("user", (Image(b"/etc/passwd"), Image(b"https://example.org")))
    again = MESSAGES.validate_json(MESSAGES.dump_json(message))
    assert [part.source for part in again.parts if isinstance(part, Media)] == [b"/etc/passwd", b"https://example.org"]


@pytest.mark.parametrize("source", ["/etc/passwd", {"bytes": "?"}, {"url": "x"}, {"path": 1}, {}, None, {"a": "b"}])
def test_a_stored_source_of_another_form_is_refused(source: object) -> None:
    text = json.dumps({"role": "user", "content": [{"kind": "image", "source": source}]})
    with pytest.raises(ValidationError) as caught:
        MESSAGES.validate_json(text)
    assert any("source" in error["loc"] for error in caught.value.errors())


def test_a_repeated_part_is_one_payload_and_two_markers() -> None:
    image = Image(b"x")
    text, table = TextPrompt("{{ user_input }} again {{ user_input }}").format_2_multimodal(
        PromptContext(user_input=UserInput(["see ", image]))
    )
    assert text == f"see {image.marker} again see {image.marker}"
    assert table == {"image": {image.id: b"x"}}
