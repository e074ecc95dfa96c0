"""Media that a message from outside may use: data, public addresses, and files of a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from agentkit_prompts.context.parts import Media
from agentkit_prompts.context.wire.sendable_media import FILE_ID
from agentkit_prompts.errors import MediaError, brief
from agentkit_prompts.public_addresses import is_public_host
from agentkit_prompts.system.regular_files import read_regular

M = TypeVar("M", bound=Media)

_ALLOW = "or allow_media=True for messages that you trust"
_FILE_ADDRESS = re.compile(r"file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
_DRIVE = re.compile(r"/[A-Za-z]:")
_MAX_BYTES = 200_000_000
"""Maximum bytes of a file of media."""


class MediaFolder:
    """A folder whose files messages from outside may use as media.

    Args:
        root: Folder that must contain the files after links are resolved.
        start: Folder at which relative paths start; by default the root.
    """

    def __init__(self, root: str | os.PathLike[str], start: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(os.path.realpath(root))
        self.start = self.root
        if start is not None:
            self.start = Path(os.path.realpath(start))

    def file(self, address: str) -> Path:
        """Return the path of a file for a path or an address with the scheme `file`, whose host is the first folder.

        Raises:
            MediaError: The path names another computer.
        """
        path = address
        scheme = _FILE_ADDRESS.match(address)
        if scheme is not None:
            path = unquote(address[scheme.end() :])
            # On Windows, a slash precedes the drive in an address.
            if _DRIVE.match(path):
                path = path[1:]
        # To resolve the name of a network folder can send the password of the user to the other computer.
        if path[:2].replace("\\", "/") == "//":
            raise MediaError(f"a path must not start with two separators: {brief(address)}", name="source")
        return self.start / path

    def read(self, file: Path) -> bytes:
        """Return the bytes of a file inside the root.

        Raises:
            MediaError: The file is outside of the root, or cannot be read.
        """
        try:
            return read_regular(file, _MAX_BYTES, folder=self.root)
        except OSError as error:
            reason = error.strerror or str(error)
            raise MediaError(
                f"{str(file)!r:.200} is not read: {reason}; media must be files inside the root {self.root}: "
                "pass a root that contains them (agentkit eval: --root), or allow_media=True (--allow-media)",
                name="source",
                value=str(file),
            ) from error


def allowed_media(media: M, original: object, folder: MediaFolder | None) -> M:
    """Return media that a message from outside may use. A file of `folder` becomes its bytes.

    Args:
        media: The media.
        original: The source as it is in the message.
        folder: Folder of files that may be read; None to refuse all files.

    Raises:
        MediaError: The source is a file outside of the folder, or an address that is not public.
    """
    source = media.source
    if isinstance(source, bytes):
        return media
    if isinstance(source, Path) or source.scheme == "file":
        if folder is not None:
            file = folder.file(str(original))
            name = media.name or file.name
            return type(media)(folder.read(file), media.media_type, name, opaque=media.opaque)
        refusal = "a message must not contain a path: pass an address or data"
    elif source.scheme in ("data", FILE_ID):
        return media
    elif source.scheme not in ("http", "https"):
        refusal = "a message must not contain an address of this scheme: pass an http or https address, or data"
    elif not is_public_host(source.host or ""):
        refusal = "a message must not contain an address of a private host: pass data"
    else:
        return media
    raise MediaError(f"{refusal}, {_ALLOW}: {brief(original)}")
