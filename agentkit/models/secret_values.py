"""Detection of secret values in JSON data, by their names or by their form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_SECRET_WORDS = frozenset(
    ("auth", "authentication", "authorization", "bearer", "cookie", "cookies", "credential", "credentials")
) | {"passphrase", "passwd", "password", "pwd", "secret", "secrets"}
_SECRET_ENDINGS = ("key", "keys", "token")
_PUBLIC_NAMES = frozenset(("cache_key", "idempotency_key", "prompt_cache_key"))

_KEY = re.compile(
    r"\A\s*(?i:bearer|basic|token)\s+\S+\s*\Z"  # the value of a header
    r"|(?<![A-Za-z0-9])(?:sk|pk|rk|gsk|hf|r8|xai|nvapi|gh[opsur]|github_pat|glpat|xox[abeprs]|xapp)[-_][A-Za-z0-9]"
    r"|(?<![A-Za-z0-9])(?:AKIA|ASIA|AIza|ya29\.|eyJ)[A-Za-z0-9]"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|://[^/\s@]*+@"  # an address with a password
    # or with a query or fragment: only the first address of a word is searched, because its rest contains the others
    r"|(?<!\S)(?:(?!://)\S)*+://[^\s?#]*+[?#]\S"
)
_PARTS = re.compile(r"://[^/\s@:]*+:([^/\s@]*+)@|[?#&](?:[^\s=&#]*+=)?+([^\s&#]++)")
"""The password, query values and fragment of an address."""
_RUN = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{16,}+")
_CHANGE = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[a-z])(?=[A-Z])")
_MIN_CHANGES = 4
"""Changes between digits, small and capital letters by which a random run differs from a word."""


def secrets_in(value: Any, *, is_secret: bool = False) -> list[str]:
    """Return the secrets in JSON data, at any depth, with the secret parts of addresses.

    Args:
        value: JSON data.
        is_secret: True if every value in the data is a secret, because of its name.
    """
    secrets: list[str] = []
    if isinstance(value, Mapping):
        for name, item in value.items():
            secrets += secrets_in(item, is_secret=is_secret or _is_secret_name(name))
    elif isinstance(value, list | tuple):
        for item in value:
            secrets += secrets_in(item, is_secret=is_secret)
    elif isinstance(value, str):
        if is_secret or _is_key(value):
            secrets += _secret_texts(value)
    # Numbers may be secrets; true and false are not worth hiding.
    elif is_secret and value is not None and not isinstance(value, bool):
        secrets.append(str(value))
    return secrets


def _secret_texts(text: str) -> list[str]:
    """Return a secret; if the secret is an address, also its parts that may appear alone."""
    if "://" not in text:
        return [text]
    return [text, *(part for parts in _PARTS.findall(text) for part in parts if part)]


def without_secrets(value: Any) -> Any:
    """Return JSON data in which `***` replaces secrets."""
    if isinstance(value, Mapping):
        fields: dict[str, Any] = {}
        for name, item in value.items():
            fields[name] = "***"
            if not _is_secret_name(name):
                fields[name] = without_secrets(item)
        return fields
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    if isinstance(value, str) and _is_key(value):
        return "***"
    return value


def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or name.lower() in _PUBLIC_NAMES:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or words[-1].endswith(_SECRET_ENDINGS)


def _is_key(text: str) -> bool:
    return _KEY.search(text) is not None or any(
        sum(1 for _ in _CHANGE.finditer(run)) >= _MIN_CHANGES for run in _RUN.findall(text)
    )
