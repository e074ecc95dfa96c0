"""Images that a model generated and web pages that its provider cited: in the message, the output and the result."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agentkit import Agent, AnthropicModel, Limits, Message, OpenAIModel, OpenAIResponsesModel, Session
from agentkit.errors import OutputError
from agentkit.prompts import Image, Text
from agentkit_prompts.context.parts import Url
from tests.models.asking import NOTHING_LEFT_OPEN, both
from tests.models.wire_forms import WIRES, as_event, model_of, wire_reply
from tests.servers import ChatServer, chunk, completion, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN
PNG = b"\x89PNG\r\n\x1a\npixels"
DATA = base64.b64encode(PNG).decode()
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
URL = "https://example.org/page"
PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}


def responses(*output: Any) -> Any:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [*output], "usage": usage}


def message_item(text: str, *annotations: Any) -> Any:
    part = {"type": "output_text", "text": text, "annotations": [*annotations]}
    return {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}


def image_item(data: str = DATA, **fields: Any) -> Any:
    return {"type": "image_generation_call", "id": "ig", "status": "completed", "result": data, **fields}


CITED = {"type": "url_citation", "url": URL, "title": "A page", "start_index": 4, "end_index": 8}


def anthropic(*content: Any) -> Any:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [*content],
            "stop_reason": "end_turn", "usage": usage}  # fmt: skip


def test_an_image_of_the_responses_api_is_a_part_and_is_sent_back_as_its_item(server: ChatServer) -> None:
    first = responses(image_item(output_format="webp"), message_item("See it."))
    name = server.on("draws", in_turn(sends(first), sends(responses(message_item("ok")))))
    session = Session("s")
    agent = Agent(OpenAIResponsesModel(name, base_url=server.url), "Draw.")
    result = agent.run_sync("Draw", session=session)
    assert result.output == "See it."
    assert result.messages[-1].content[-1] == Image(PNG, media_type="image/webp")
    agent.run_sync("Again", session=session)
    items = server.asked[-1].body["input"]
    assert [item.get("type") for item in items] == [None, "image_generation_call", "message", None]
    assert items[1]["result"] == DATA
    assert [part["text"] for part in items[2]["content"]] == ["See it."]


def test_an_image_of_a_chat_completion_is_sent_back_in_its_field_only(server: ChatServer) -> None:
    name = server.on("draws-on", in_turn(sends(completion("See it.", images=[PART])), sends(completion("ok"))))
    agent, session = Agent(OpenAIModel(name, base_url=server.url), "Draw."), Session("s")
    agent.run_sync("Draw", session=session)
    agent.run_sync("Again", session=session)
    assert server.asked[-1].body["messages"][2] == {"role": "assistant", "content": "See it.", "images": [PART]}


def test_an_image_that_arrives_two_times_is_one_part(server: ChatServer) -> None:
    parts: Any = [PART, {"type": "text", "text": "See it."}]
    name = server.on("draws-twice", sends(completion(parts, images=[PART])))
    message = Agent(OpenAIModel(name, base_url=server.url), "Draw.").run_sync("Draw").messages[-1]
    assert message.content == (Text("See it."), Image(PNG, media_type="image/png"))


@pytest.mark.parametrize("address", ["https://example.org/a.png", "http://example.org/a.png"])
def test_an_image_can_be_an_address(server: ChatServer, address: str) -> None:
    name = server.on("address", sends(completion(None, images=[{"image_url": {"url": address}}])))
    model = OpenAIModel(name, base_url=server.url)
    assert Agent(model, "Draw.", output=Image).run_sync("Draw").output == Image(Url(address))


@pytest.mark.parametrize("position", ["content", "images"])
@both
def test_an_image_of_a_chat_completion_is_a_part_and_can_be_the_output(
    server: ChatServer, position: str, stream: bool
) -> None:
    fields: Any = {"images": [PART]}
    if position == "content":
        fields = {"content": [{"type": "text", "text": "See "}, {"type": "text", "text": "it."}, PART]}
    if stream:
        handler = streams(
            chunk(content="See it."), chunk(**({"content": [PART]} if position == "content" else fields)), chunk("stop")
        )
    else:
        document = completion("See it.")
        document["choices"][0]["message"].update(fields)
        handler = sends(document)
    name = server.on("draws", handler)
    options: Any = {"on_event": lambda event: None} if stream else {}
    model = OpenAIModel(name, base_url=server.url)
    result = Agent(model, "Draw.").run_sync("Draw", **options)
    assert (result.output, result.messages[-1].content) == (
        "See it.",
        (Text("See it."), Image(PNG, media_type="image/png")),
    )
    assert Agent(model, "Draw.", output=Image).run_sync("Draw", **options).output == Image(PNG, media_type="image/png")


def test_a_reply_without_text_can_be_an_image(server: ChatServer) -> None:
    address = f"data:image/png;base64,{DATA}"
    for model, document in (
        (OpenAIResponsesModel, responses(image_item())),
        (OpenAIResponsesModel, responses(image_item(address))),
        (OpenAIResponsesModel, responses(image_item(output_format="webp; x=y"))),
        (OpenAIModel, completion(None, images=[PART])),
        (OpenAIModel, completion(None, images=[address])),
        (OpenAIModel, completion(None, images=[{"url": address}])),
        (OpenAIModel, completion(None, images=[{"b64_json": DATA}])),
        (OpenAIModel, completion([{"type": "output_image", "image_url": address}])),
        (OpenAIModel, completion([{"type": "image", "source": SOURCE}])),
        (OpenAIModel, completion([{"type": "image", "source": {"type": "url", "url": address}}])),
        (OpenAIModel, completion(None, images=[{"source": SOURCE}])),
        (OpenAIModel, completion(None, images=[{"inline_data": {"mime_type": "image/png", "data": DATA}}])),
        (OpenAIModel, completion([{"inlineData": {"mimeType": "image/png", "data": DATA}}])),
        (OpenAIModel, completion([{"type": "inline_data", "inline_data": {"data": DATA}}])),
    ):
        name = server.on("only", sends(document))
        local = model(name, base_url=server.url)
        assert Agent(local, "Draw.", output=Image).run_sync("Draw").output == Image(PNG, media_type="image/png")


def test_a_reply_without_an_image_is_not_an_output(server: ChatServer) -> None:
    name = server.on("refuses", sends(completion("I cannot draw.")))
    with pytest.raises(OutputError):
        Agent(OpenAIModel(name, base_url=server.url), "Draw.", output=Image, limits=Limits(repairs=0)).run_sync("Draw")


@pytest.mark.parametrize("data", ["not base64!", f"!!!!{DATA}", "", None, 5])
def test_an_image_that_cannot_be_decoded_is_skipped(server: ChatServer, data: Any) -> None:
    name = server.on("damaged", sends(responses(image_item(data), message_item("See it."))))
    result = Agent(OpenAIResponsesModel(name, base_url=server.url), "Draw.").run_sync("Draw")
    assert (result.output, result.messages[-1].text) == ("See it.", "See it.")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_an_image_of_another_endpoint_is_sent_as_its_alt_text(server: ChatServer, wire: Any) -> None:
    name = server.on("next", wire_reply(wire, "", "ok"))
    image = Image(PNG, media_type="image/png", name="cat.png")
    history = [Message("user", "Draw"), Message("assistant", (Text("See it. "), image))]
    session = Session("s", conversation=history)
    Agent(model_of(wire, server, name), "S.").run_sync("Again", session=session)
    body = str(server.asked[-1].body)
    assert DATA not in body and "cat.png" in body


CASES: list[tuple[str, Any, Any, tuple[str, str, str, str]]] = [
    ("responses", OpenAIResponsesModel, responses(message_item("See page.", CITED)), (URL, "A page", "", "page")),
    ("chat", OpenAIModel, completion("See page.", annotations=[{"type": "url_citation", "url_citation": CITED}]),
     (URL, "A page", "", "page")),
    ("flat", OpenAIModel, completion("See page.", annotations=[{"type": "url_citation", "url": URL}]),
     (URL, "", "", "See page.")),
    ("anthropic", AnthropicModel, anthropic(
        {"type": "text", "text": "Look: "},
        {"type": "text", "text": "page", "citations": [
            {"type": "web_search_result_location", "url": URL, "title": "A page", "cited_text": "words",
             "encrypted_index": "E"},
            {"type": "char_location", "document_index": 0, "document_title": "a.pdf", "cited_text": "other"}]}),
     (URL, "A page", "words", "page")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "document", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_web_page_that_the_provider_cited_is_a_citation(
    server: ChatServer, name: str, model: Any, document: Any, expected: tuple[str, str, str, str]
) -> None:
    served = server.on(f"cites-{name}", sends(document))
    url = server.url.removesuffix("/v1") if model is AnthropicModel else server.url
    result = Agent(model(served, base_url=url, api_key="key-of-nobody"), "S.").run_sync("Find")
    (citation,) = result.citations
    document = citation.document
    cited = result.output[citation.start : citation.end]
    assert (document.source, document.title, document.text, cited) == expected


def test_annotations_of_a_stream_and_of_damaged_data(server: ChatServer) -> None:
    annotations: list[Any] = [
        None, 5, {"type": "file_citation", "file_id": "f"}, {"type": "url_citation", "url": 5},
        {"type": "url_citation", "url_citation": "x"},
        {"type": "url_citation", "url_citation": {"url": URL, "start_index": 90, "end_index": 2}},
    ]  # fmt: skip
    name = server.on("stream", streams(chunk(content="See page."), chunk(annotations=annotations), chunk("stop")))
    result = Agent(OpenAIModel(name, base_url=server.url), "S.").run_sync("Find", on_event=lambda event: None)
    assert [(item.label, item.start, item.end) for item in result.citations] == [(URL, 0, 9)]


def test_an_event_with_a_citation_only_adds_it_to_its_text(server: ChatServer) -> None:
    annotation = {"type": "response.output_text.annotation.added", "item_id": "m1", "output_index": 0,
                  "content_index": 0, "annotation": CITED}  # fmt: skip
    delta = {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "delta": "See page."}
    empty = {"type": "response.completed", "response": responses()}
    repeated = {"type": "response.completed", "response": responses(message_item("See page.", CITED))}
    location = {"type": "web_search_result_location", "url": URL, "title": "A page", "cited_text": ""}
    cites = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": location}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "See page."}}
    ends = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    streamed: list[tuple[Any, list[Any]]] = [
        (OpenAIResponsesModel, [delta, annotation, empty]),
        (OpenAIResponsesModel, [annotation, delta, empty]),
        (OpenAIResponsesModel, [delta, annotation, repeated]),
        (AnthropicModel, [cites, text, *ends]),
        (AnthropicModel, [text, cites, *ends]),
    ]
    for model, events in streamed:
        name = server.on("cites-alone", streams(*[as_event(event) for event in events], done=False))
        url = server.url.removesuffix("/v1") if model is AnthropicModel else server.url
        agent = Agent(model(name, base_url=url, api_key="key-of-nobody"), "S.")
        result = agent.run_sync("Find", on_event=lambda event: None)
        assert result.output == "See page."
        assert [item.document.source for item in result.citations] == [URL]


@both
def test_pages_outside_of_the_message_are_citations_and_are_not_sent_back(server: ChatServer, stream: bool) -> None:
    other = "https://example.org/other"
    results = [{"title": "A page", "url": URL, "date": "2026-01-01"}, {"title": "B", "url": other}]
    pages: list[tuple[Any, list[tuple[str, str]]]] = [
        ({"citations": [URL, other]}, [(URL, ""), (other, "")]),
        ({"citations": [URL], "search_results": results}, [(URL, "A page"), (other, "B")]),
        ({"citations": ["a label", 5, None, URL]}, [(URL, "")]),
        ({"citations": None, "search_results": "none"}, []),
    ]
    for fields, expected in pages:
        first = sends({**completion("See [1]."), **fields})
        if stream:
            # Each event repeats the list.
            first = streams(*[{**piece, **fields} for piece in (chunk(content="See "), chunk("stop", content="[1]."))])
        name = server.on("searches", in_turn(first, *[sends(completion("ok"))]))
        agent, session = Agent(OpenAIModel(name, base_url=server.url), "S."), Session("s")
        result = agent.run_sync("Find", session=session, on_event=(lambda event: None) if stream else None)
        assert [(item.label, item.document.title) for item in result.citations] == expected
        agent.run_sync("Again", session=session)
        assert URL not in str(server.asked[-1].body)
