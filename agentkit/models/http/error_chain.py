"""The chain of causes of an error, without the errors that contain a secret."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit_prompts.credentials import spellings


def cut_chain(error: BaseException, secrets: Sequence[str]) -> None:
    """Remove errors that contain a secret from the chain of an error: `from None` leaves them in `__context__`."""
    seen = {id(error)}
    todo, forms = [error], [form for secret in secrets for form in spellings(secret)]
    while forms and todo:
        current = todo.pop()
        for name in ("__cause__", "__context__"):
            inner = getattr(current, name)
            if inner is None or id(inner) in seen:
                continue
            if _contains_any(inner, forms):
                setattr(current, name, None)
            else:
                seen.add(id(inner))
                todo.append(inner)


def _contains_any(error: BaseException, texts: Sequence[str]) -> bool:
    """True if an error, or the headers of its request, contain one of the texts."""
    headers = getattr(getattr(error, "request", None), "headers", {})
    content = "\n".join((str(error), repr(error), repr(vars(error)), *headers.values()))
    return any(text in content for text in texts)
