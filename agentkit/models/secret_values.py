"""Which values of a mapping are secret: by the name they stand under, or because they look like a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["secrets_in", "without_secrets"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_SECRET_WORDS = frozenset(
    ("auth", "authentication", "authorization", "bearer", "cookie", "cookies", "credential", "credentials")
) | {"passphrase", "passwd", "password", "pwd", "secret", "secrets"}
_SECRET_ENDINGS = ("key", "keys", "token")
_NO_SECRETS = frozenset(("cache_key", "idempotency_key", "prompt_cache_key"))

_KEY = re.compile(
    r"\A\s*(?i:bearer|basic|token)\s+\S+\s*\Z"  # as a header has it
    r"|(?<![A-Za-z0-9])(?:sk|pk|rk|gsk|hf|r8|xai|nvapi|gh[opsur]|github_pat|glpat|xox[abeprs]|xapp)[-_][A-Za-z0-9]"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA|AIza|ya29\.|eyJ)[A-Za-z0-9]"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|://[^/\s@]*+@"  # an address with a password
    r"|://[^\s?#]*+[?#]\S"  # or with a query or fragment
)
_PARTS = re.compile(r"://[^/\s@:]*+:([^/\s@]*+)@|[?#&](?:[^\s=&#]*+=)?+([^\s&#]++)")
"""The password in an address, and what stands in its query and fragment."""
_RUN = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{16,}+")
_CHANGE = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[a-z])(?=[A-Z])")
_MIN_CHANGES = 4
"""Changes between digits, small and capital letters in a run of them that no word has, but a random one."""


def secrets_in(value: Any, *, is_secret: bool = False) -> list[str]:
    """Return the secrets in JSON data, at any depth; of an address its parts, too.

    Args:
        value: JSON data.
        is_secret: True if every value in it is a secret, because of its name.
    """
    if isinstance(value, Mapping):
        return [
            secret
            for name, item in value.items()
            for secret in secrets_in(item, is_secret=is_secret or _is_secret_name(name))
        ]
    if isinstance(value, list | tuple):
        return [secret for item in value for secret in secrets_in(item, is_secret=is_secret)]
    if isinstance(value, str):
        if is_secret or _is_key(value):
            return _secret_texts(value)
        return []
    # Numbers may be secrets; true and false are not worth hiding.
    if is_secret and value is not None and not isinstance(value, bool):
        return [str(value)]
    return []


def _secret_texts(text: str) -> list[str]:
    """Return a secret, and the parts of it that show up alone if it is an address."""
    if "://" not in text:
        return [text]
    return [text, *(part for parts in _PARTS.findall(text) for part in parts if part)]


def without_secrets(value: Any) -> Any:
    """Return JSON data with stars in the place of secrets."""
    if isinstance(value, Mapping):
        return {name: "***" if _is_secret_name(name) else without_secrets(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    if isinstance(value, str) and _is_key(value):
        return "***"
    return value


def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or name.lower() in _NO_SECRETS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or words[-1].endswith(_SECRET_ENDINGS)


def _is_key(text: str) -> bool:
    return _KEY.search(text) is not None or any(
        sum(1 for _ in _CHANGE.finditer(run)) >= _MIN_CHANGES for run in _RUN.findall(text)
    )
