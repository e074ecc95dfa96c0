"""Media of rows and configurations: files inside the root only, and no address of an inner network."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from agentkit import Message, ScriptedModel
from agentkit.model_evaluation.media_hosts import MediaHosts
from agentkit.prompts import Image, Media, Url, evaluation
from agentkit.prompts.evaluation import InContext, InContextError, to_messages

SECRET, PICTURE = b"PRIVATE KEY", b"\x89PNG\r\n\x1a\n picture"


def _mm(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Put the part into the template, and its address into the row."""
    template = {"round": [{"role": "HUMAN", "prompt_mm": {"image": part}}]}
    url = part["image_url"]["url"]
    part["image_url"]["url"] = "{image}"
    return {"type": "MMPromptTemplate", "template": template}, {**row, "content": f"<AIS_IMAGE_START>{url}"}


def _fixed(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    template = {"round": [{"role": "HUMAN", "prompt_mm": {"image": part}}]}
    return {"type": "MMPromptTemplate", "template": template}, {**row, "content": "<AIS_IMAGE_START>a"}


def _raw(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return {"type": "RawPromptTemplate", "messages": [{"role": "user", "content": [part]}]}, row


def _raw_file(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return _raw({"type": "file", "file": {"path": part["image_url"]["url"]}}, row)


def _file_data(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return _raw({"type": "input_file", "file_url": part["image_url"]["url"]}, row)


def _before_the_question(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    roles = [("user", [part]), ("assistant", "yes"), ("user", "{q}")]
    messages = [{"role": role, "content": content} for role, content in roles]
    return {"type": "RawPromptTemplate", "messages": messages}, row


def _expanded(part: dict[str, Any], row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    messages = [{"expand_column": "chat"}]
    return {"type": "RawPromptTemplate", "messages": messages}, {**row, "chat": [{"role": "user", "content": [part]}]}


FORMS = (_mm, _fixed, _raw, _raw_file, _file_data, _before_the_question, _expanded)
OUTSIDE = (
    *("{home}/id_rsa", "../private/id_rsa", "images/../../private/id_rsa", "link", "folder_link/id_rsa", "./link"),
    *("file://{home}/id_rsa", "FILE://{home}/id_rsa", "file:{home}/id_rsa", "file://localhost{home}/id_rsa"),
    *("file://{home}/%69d_rsa", "file://../private/id_rsa", "file://images/%2e%2e/%2e%2e/private/id_rsa", "file:link"),
    *(
        "file://%2e%2e/private/id_rsa",
        "file://folder_link/id_rsa",
        "~/id_rsa",
        "..\\private\\id_rsa",
        "//private/id_rsa",
    ),
    *("\\\\server\\share\\a.png", "file:////server/share/a.png", "/dev/zero", "images", "missing.png", "a\0b", "pipe"),
    *("images/%2e%2e/%2e%2e/private/id_rsa", "/proc/self/environ", "C:\\secret.png", "file:///C:/secret.png"),
)
INSIDE = (
    *("images/a b.png", "./images/a b.png", "{root}/images/a b.png", "file://{root}/images/a b.png", "inner_link"),
    *("file://{root}/images/a%20b.png", "file://images/a b.png", "file:images/a%20b.png", "images/../images/a b.png"),
    *("file://localhost{root}/images/a%20b.png", "../data/images/a b.png"),
)
INNER = (
    *("http://127.0.0.1/a.png", "http://localhost:80/a.png", "http://2130706433/a.png", "http://0x7f.1/a.png"),
    *("http://017700000001/a.png", "http://127.1/a.png", "http://[::1]/a.png", "http://[::ffff:10.0.0.1]/a.png"),
    *("http://[::ffff:7f00:1]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1]/", "http://169.254.169.254/latest"),
    *("http://user:word@10.0.0.1/a.png", "HTTPS://192.168.0.1/", "http://metadata/", "http://a.localhost./a.png"),
    *("http://db.internal/a.png", "ftp://example.org/a.png", "http://\uff11\uff12\uff17.0.0.1/", "http://0/"),
    *("http:\\\\127.0.0.1/a.png", "http:127.0.0.1/a.png", "gopher://127.0.0.1/"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a picture and links, next to a folder with a secret."""
    home, root = tmp_path / "private", tmp_path / "data"
    (root / "images").mkdir(parents=True)
    home.mkdir()
    (home / "id_rsa").write_bytes(SECRET)
    (root / "images" / "a b.png").write_bytes(PICTURE)
    (root / "link").symlink_to(home / "id_rsa")
    (root / "folder_link").symlink_to(home)
    (root / "inner_link").symlink_to(root / "images" / "a b.png")
    os.mkfifo(root / "pipe")
    return root


def _sent(form: Callable[..., Any], address: str, options: dict[str, Any]) -> Any:
    """Return the source of the media that the model receives."""
    part = {"type": "image_url", "image_url": {"url": address}}
    template, row = form(part, {"q": "hi", "a": "1"})
    cfg = {
        "reader_cfg": {"input_columns": ["q"], "output_column": "a"},
        "infer_cfg": {"prompt_template": template, "inferencer": {"type": "GenInferencer"}},
    }
    model = ScriptedModel(["1"])
    evaluation.run_sync(cfg, [row], model, score="none", **options)
    (media,) = [part for message in model.requests[0].messages for part in message.parts if isinstance(part, Media)]
    return media.source


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_sent_only_if_it_is_inside_the_root(
    root: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[..., Any]
) -> None:
    home = root.parent / "private"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    failures = []
    for address in (*OUTSIDE, *INSIDE):
        text = address.format(home=home, root=root)
        # Without a root, every file is refused.
        for options in ({}, {"root": root}):
            try:
                source = _sent(form, text, options)
            except InContextError:
                source = b""
            expected = b""
            if options and address in INSIDE:
                expected = PICTURE
            if source != expected:
                failures.append((address, options, source))
    assert failures == []


@pytest.mark.parametrize("form", FORMS)
def test_an_address_of_an_inner_network_is_not_sent(root: Path, form: Callable[..., Any]) -> None:
    for address in INNER:
        with pytest.raises(InContextError):
            _sent(form, address, {"root": root})


def test_a_name_with_an_inner_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = []

    def look_up(host: str, *_: object, **__: object) -> list[tuple[Any, ...]]:
        lookups.append(host)
        addresses = {"in.example.org": ["93.184.216.34", "127.0.0.1"]}
        if host not in addresses:
            raise socket.gaierror(-2, "unknown")
        return [(2, 1, 6, "", (address, 0)) for address in addresses[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for form in FORMS:
        with pytest.raises(InContextError) as caught:
            _sent(form, "http://in.example.org/a.png", {})
        assert caught.value.value == "in.example.org"
    # This machine can be unable to look up a name that the server can.
    assert str(_sent(_raw, "http://unknown.example.org/a.png", {})) == "http://unknown.example.org/a.png"
    looked_up = len(lookups)
    assert str(_sent(_raw, "http://in.example.org/a.png", {"allow_media": True})) == "http://in.example.org/a.png"
    assert len(lookups) == looked_up


async def test_a_redirect_to_an_inner_address_is_refused() -> None:
    """The server redirects `/?TARGET` to TARGET. Its own network is allowed, and all other inner networks are not."""

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = unquote((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].partition(b"?")[2].decode())
        head = "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
        if target:
            head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\n"
        writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    here = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    # The last is a path on the same server.
    own = ("http://127.0.0.1/a.png", "http://localhost:80/a.png", "http:127.0.0.1/a.png")
    inner = [address for address in INNER if address not in own]
    refused = [*inner, "//10.0.0.1/a.png", "file:///etc/passwd", f"{here}?http://169.254.169.254/", "http://127.0.0.2/"]
    failures = []
    async with server:
        hosts = MediaHosts(["127.0.0.1/32"])
        for target in ("", here, f"{here}?{quote(here)}", "/a.png", "http://unknown.example.org/", *refused):
            message = Message("user", [Image(Url(f"{here}?{quote(target)}"))])
            is_refused = False
            try:
                await hosts.check([message])
            except InContextError:
                is_refused = True
            if is_refused != (target in refused):
                failures.append((target, is_refused))
    assert failures == []


def test_all_media_are_allowed_on_request(root: Path) -> None:
    assert _sent(_raw, str(root / "link"), {"allow_media": True}) == root / "link"
    assert str(_sent(_raw, "http://127.0.0.1/a.png", {"allow_media": True})) == "http://127.0.0.1/a.png"
    assert to_messages([{"role": "user", "content": [_part(str(root / "link"))]}], allow_media=True)[0].parts


def _part(address: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


def test_messages_and_samples_obey_the_root(root: Path) -> None:
    prompt = [{"role": "user", "content": [_part("link")]}]
    inside = [{"role": "user", "content": [_part("images/a b.png")]}]
    for folder in (None, root):
        with pytest.raises(InContextError):
            to_messages(prompt, root=folder)
    (media,) = to_messages(inside, root=root)[0].parts
    assert (media.source, media.name, media.mime) == (PICTURE, "a b.png", "image/png")  # type: ignore[union-attr]
    template = {"type": "RawPromptTemplate", "messages": inside}
    icl = InContext.from_cfg({"prompt_template": template}, {"input_columns": ["q"], "output_column": "a"})
    rows = [{"q": "x", "a": "1"}]
    with pytest.raises(InContextError):
        list(icl.samples(rows))
    (sample,) = icl.samples(rows, root=root)
    assert "data:image/png;base64" in json.dumps(sample)
