"""How an evaluation shows how far it is: a bar on stderr, or a function of yours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from agentkit.errors import AgentDefinitionError
from agentkit.model_evaluation.evaluation_result import EvaluationProgress

__all__ = ["OnProgress", "progress_listener"]

OnProgress: TypeAlias = Callable[[EvaluationProgress], object]


@contextmanager
def progress_listener(progress: bool | OnProgress, total: int) -> Iterator[OnProgress | None]:
    """Return what is called after every one of so many rows, while the block runs.

    Raises:
        AgentDefinitionError: A bar is wanted and `rich` is not installed, or it is neither a bool nor a function.
    """
    if callable(progress):
        yield progress
    elif progress is True:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError as error:
            raise AgentDefinitionError(
                "progress=True draws a bar with rich: pip install 'agentkit-prompt-tree[cli]', or give a function"
            ) from error
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("asking", total=total)

            def show(now: EvaluationProgress) -> None:
                text = "asking"
                if now.failed:
                    text = f"asking ({now.failed} failed)"
                bar.update(task, description=text, completed=now.done, total=now.total)

            yield show
    elif progress is False:
        yield None
    else:
        raise AgentDefinitionError(
            f"progress: expected True, False or a function, got {progress!r:.60}",
            name="progress",
            value=type(progress).__name__,
        )
