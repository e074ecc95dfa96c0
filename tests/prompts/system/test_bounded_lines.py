"""Lines of a file with a limit of bytes."""

from __future__ import annotations

import io

from agentkit_prompts.system.regular_files import bounded_lines

CASES: list[tuple[bytes, list[bytes | None]]] = [
    (b"", []),
    (b"\n", [b"\n"]),
    (b"abcd", [b"abcd"]),
    (b"abcd\n", [b"abcd\n"]),
    (b"abcd\r\n", [None]),
    (b"abcde", [None]),
    (b"abcde\n", [None]),
    (b"abcde\nab\n", [None, b"ab\n"]),
    (b"abcdefgh\nab", [None, b"ab"]),
    (b"abcdefghijklm\n\nab\n", [None, b"\n", b"ab\n"]),
    (b"ab\nabcdefghij", [b"ab\n", None]),
    (b"abcde\nabcde\nabcd", [None, None, b"abcd"]),
]


def test_a_line_above_the_limit_is_none_and_other_lines_keep_their_numbers() -> None:
    wrong = []
    for content, expected in CASES:
        lines = list(bounded_lines(io.BufferedReader(io.BytesIO(content)), 4))
        if lines != list(enumerate(expected, 1)):
            wrong.append((content, lines))
    assert not wrong
