"""Documents of LangChain, and nodes of LlamaIndex, as `Document`; recognised by their attributes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.wire.allowed_media import allowed_media
from agentkit_prompts.errors import ContextError, MediaError

_SOURCES = ("source", "file_path", "file_name", "url")
"""Keys of metadata that name the source of a document, in their order."""


class _LangChainDocument(Protocol):
    @property
    def page_content(self) -> str: ...
    @property
    def metadata(self) -> dict[Any, Any]: ...


class _LlamaIndexNode(Protocol):
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def node_id(self) -> str: ...
    @property
    def get_content(self) -> Callable[..., str]: ...


ForeignDocument: TypeAlias = _LangChainDocument | _LlamaIndexNode
"""A document of LangChain, or a node of LlamaIndex with or without a score."""


def foreign_document(item: object) -> Document | None:
    """Return a document of another library as an untrusted `Document`; None for any other value.

    The source and the title are copied from the metadata, which are unchanged.

    Raises:
        ContextError: The document has a part that cannot be kept, such as audio or an image in a local file.
    """
    if isinstance(item, type | Mapping | str):
        return None
    metadata = getattr(item, "metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    text = getattr(item, "page_content", None)
    if isinstance(text, str):
        return _document(item, text, getattr(item, "id", None), metadata)
    if callable(getattr(item, "get_content", None)) and hasattr(item, "node_id"):
        return _node(item, metadata)
    return None


def _document(item: Any, text: str, item_id: object, metadata: Mapping[str, Any], **fields: Any) -> Document:
    source = next((metadata[key] for key in _SOURCES if isinstance(metadata.get(key), str)), "")
    title = metadata.get("title")
    if not isinstance(title, str):
        title = ""
    return Document(text, id=str(item_id or ""), title=title, source=source, metadata=metadata, **fields)


def _node(item: Any, metadata: Mapping[str, Any]) -> Document:
    # A node with a score contains the node.
    node = getattr(item, "node", item)
    score = getattr(item, "score", None)
    for name in ("audio_resource", "video_resource"):
        if getattr(node, name, None) is not None:
            raise ContextError("Document", [(name, "a document has text and an image: pass this medium as a part")])
    image = _image(node)
    if score is not None:
        score = float(score)
    values = dict(metadata)
    parent = getattr(node, "ref_doc_id", None)
    if parent and "ref_doc_id" not in values:
        values["ref_doc_id"] = parent
    return _document(node, item.get_content(), item.node_id, values, score=score, image=image)


def _image(node: Any) -> Image | None:
    """Return the image of a node, if any.

    Raises:
        ContextError: The image is in a local file, at a private address, or cannot be decoded.
    """
    resource = getattr(node, "image_resource", None)
    if resource is not None:
        data, address = getattr(resource, "data", None), getattr(resource, "url", None)
        path, media_type = getattr(resource, "path", None), getattr(resource, "mimetype", None)
    else:
        data, address = getattr(node, "image", None), getattr(node, "image_url", None)
        path, media_type = getattr(node, "image_path", None), getattr(node, "image_mimetype", None)
    if data is None and address is None and path is None:
        return None
    source: Any = path
    try:
        if data is not None:
            source = base64.b64decode(data, validate=True)
        elif address is not None:
            source = str(address)
        return allowed_media(Image(source, media_type), source, None)
    except (MediaError, ValueError) as error:
        raise ContextError("Document", [("image", str(error))]) from error
