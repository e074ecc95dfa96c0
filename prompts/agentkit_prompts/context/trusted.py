"""`Trusted`: text of the developer in a value of the context."""

from __future__ import annotations


class Trusted(str):
    """Text of the developer, as an additional kwarg, in `extra`, or as the return value of a custom class.

    A document, a fact and other items have a field `trust` instead. Text of users and of conversations is never
    trusted. `Trusted` at these places is an error, because it would have no effect.
    """

    __slots__ = ()


NEVER_TRUSTED = (
    "Trusted has no effect here, because this text is never trusted: pass a str; text of the developer belongs to a "
    "prompt, an additional kwarg or extra"
)
"""Problem of `Trusted` in the input of a user, a message or a summary."""
