"""`TokenFile`: the OAuth tokens of one MCP server, in a file that only its owner can read."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.flushed_files import whole_file
from agentkit_prompts.system.private_files import private_folder
from agentkit_tools.errors import MCPLoginError

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
    from pydantic import BaseModel

Record = TypeVar("Record", bound="BaseModel")

_DIGITS = 32
_LOCK_SECONDS = 0.05
"""Seconds between two attempts to lock."""


class TokenFile:
    """A `TokenStorage` of the SDK. The file is in `agentkit/mcp` of the user's config folder.

    Args:
        address: Address of the server, without credentials.
        folder: Folder of the file; None for the config folder of the user.

    Attributes:
        path: The file; it exists after a login.
    """

    def __init__(self, address: str, folder: Path | None = None) -> None:
        self._address = address
        name = sha256(address.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
        self.path = (folder or _config_folder()) / f"{name}.json"

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens, or None.

        Raises:
            MCPLoginError: The file cannot be read.
        """
        from mcp.shared.auth import OAuthToken

        return self._read("tokens", OAuthToken)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens. Raises `OSError`."""
        self._write("tokens", tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored registration of this client, or None.

        Raises:
            MCPLoginError: The file cannot be read.
        """
        from mcp.shared.auth import OAuthClientInformationFull

        return self._read("client", OAuthClientInformationFull)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of this client. Raises `OSError`."""
        self._write("client", client_info)

    def remove(self) -> bool:
        """Delete the file; return False if it does not exist. Raises `OSError`."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until no other session, in this or another process, runs such a block.

        Raises:
            OSError: The folder cannot be written.
        """
        private_folder(self.path.parent)
        # The file of tokens cannot be locked: it is replaced.
        file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not locked(file):
                await asyncio.sleep(_LOCK_SECONDS)
            yield
        finally:
            unlock(file)
            os.close(file)

    def _read(self, key: str, kind: type[Record]) -> Record | None:
        """Return a record of the file; None if the file or the record is missing."""
        from pydantic import ValidationError

        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._unreadable(type(error).__name__) from error
        if not isinstance(data, dict):
            raise self._unreadable("the file contains no object")
        if data.get(key) is None:
            return None
        try:
            return kind.model_validate(data[key])
        except ValidationError as error:
            # The text of the error would contain the token.
            raise self._unreadable(f"{kind.__name__} has {error.error_count()} problems") from None

    def _unreadable(self, problem: str) -> MCPLoginError:
        text = f"the file of tokens {self.path} cannot be read ({problem}): run `agentkit mcp login {self._address}`"
        return MCPLoginError(text, reason="required", server=self._address)

    def _write(self, key: str, value: Any) -> None:
        data: dict[str, Any] = {}
        # A file that cannot be read is replaced.
        with suppress(OSError, ValueError, RecursionError):
            stored = json.loads(self.path.read_bytes())
            if isinstance(stored, dict):
                data = stored
        data = {**data, "server": self._address, key: value.model_dump(mode="json", exclude_none=True)}
        private_folder(self.path.parent)
        # Another process can read the file at any time.
        with whole_file(self.path) as draft:
            draft.write_text(json.dumps(data), "utf-8")


def _config_folder() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    if not base.is_absolute():
        base = Path.home() / ".config"
    return base / "agentkit" / "mcp"
