"""Many cases in one test, which fails at the end with all the cases that failed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


@contextmanager
def collected(failures: list[str], *case: object) -> Iterator[None]:
    """Append an exception of the block to `failures`, with the case of the block."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        shown = ", ".join([f"{one!r:.80}" for one in case])
        failures.append(f"{shown}: {type(error).__name__}: {error}")


def for_cases(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that runs a test for each case, as `pytest.mark.parametrize` does, but as one test.

    Args:
        names: Name of the parameter, or names of several.
        cases: A value for each run; with several names a tuple of values.
    """
    parameters = [names] if isinstance(names, str) else [*names]
    listed = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            errors: list[BaseException] = []
            for case in listed:
                values = [case] if len(parameters) == 1 else case
                try:
                    test(*args, **kwargs, **dict(zip(parameters, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"case: {case!r:.200}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(listed)} cases fail", errors)

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        vars(run)["__signature__"] = signature.replace(parameters=rest)
        return run

    return decorate
