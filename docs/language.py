"""Check the English of docstrings, comments, messages, help texts and pages against the style guide.

usage: docs/language.py [PATH ...]

Each row of `PATTERNS` is a habit that makes a reader stop, and the better form. Headings, code, and quoted text are not
checked. In tests, names of functions are checked, and no string constants, which are data.
`docs/language_allowed.txt` lists exceptions, at most 2 % of the texts: a path, a tab, and a part of the text.
Prints each match as `path:line: pattern: text` and exits with 1 if there are any, or if an exception matches no text.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agentkit", "prompts/agentkit_prompts", "tools/agentkit_tools", "memory/agentkit_memory")
TESTS = "tests"
FOLDERS = (*PACKAGES, TESTS, "docs", "examples", "benchmarks", "scripts", ".ci", ".github")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "SUPPORT.md")
ALLOWED = ROOT / "docs/language_allowed.txt"
ALLOWED_SHARE = 0.02

NOUN_CLAUSE = "start with a verb (function), a noun (class, field) or 'True if'"
QUESTION = r"(?!.*\?)"
REFERENCE = "repeat the noun"
PATTERNS = {
    rf"^(What|Who|Whose|Where|Whether|Which)\b{QUESTION}": NOUN_CLAUSE,
    rf"^(How|Why)\b(?! to\b){QUESTION}": NOUN_CLAUSE,
    r"^(Return|Give|Yield|Take|Say|Tell) (what|where|who|how|whose|whether|why)\b": "name the value",
    r"^(Have|Has|Let) \w": "name the action: 'Resume a run'",
    r"\b(go|goes|gone|going|went) on\b": "continue, resume",
    r"\b(nobody|somebody|anybody|everybody|whoever)\b": "name the actor: the caller, a person",
    r"\bwho (listens|reads|asks|iterates|decides)\b": "name the actor: the listener",
    r"\b(of|on) (its|their|your|our|one's|his|my) own\b|\bof (ours|yours|theirs)\b": "custom, separate, your",
    r"\bstands?\b(?![- ]ins?\b)|\bstood\b": "is, means, follows, precedes",
    r"\bbeside\b": "next to, as well as, in addition to",
    r"\bbehind\b(?! an? (?:\w+ )?(?:proxy|load balancer|gateway|firewall|endpoint|server))": "after",
    r"\bin front of\b": "before",
    r"\bthere (is|are) (no|not|none)\b|\bthere is: ": "unknown, missing, without",
    r"\b(that|which) there (is|are)\b": "unknown, missing, without",
    r"\bin (the|its|their|our) place of\b|\bin (its|their) place\b": "instead of",
    r"\b(so|that|as) (many|few) (?!as\b)(at once|of|in|[a-z]+s\b)": "name the number or the limit",
    r"\banew\b|\bat a glance\b|\bthe very same\b|\bthe like\b": "again, directly, the same",
    r"\b(says|said|tells|told|hears|heard|wants|wanted|vouch(?:es)?|speaks)\b": "sends, returns, reports, requires",
    r", where (it|that|they|there|this|one|none|he|those)\b": "if, when",
    r"\b(those|that) of\b(?! (?:course|which))": REFERENCE,
    r"\bones? (that|which|who|without|with)\b|\bones of\b|\banother one\b": REFERENCE,
    r"\bthe (other|latter|former) ones?\b": REFERENCE,
    rf"\bwhat (is|are|was|were|has|had|comes|came|can|may|must)\b{QUESTION}": REFERENCE,
    rf"\bwhat (it|they|he|one|a|an|the|this|that|of|no|only|each|every|others)\b{QUESTION}": REFERENCE,
}
FOUND = [(re.compile(pattern), advice) for pattern, advice in PATTERNS.items()]
LOCAL_NAMES = {
    "found",
    "made",
    "known",
    "given",
    "shown",
    "kept",
    "held",
    "left",
    "meant",
    "begun",
    "heard",
    "gone",
    "what",
    "one",
    "others",
}
"""Local names that do not contain the type or the role of their value."""
WORDS_OF_MESSAGE = 4
"""Minimum number of words of a string constant that is a message."""


class Text(NamedTuple):
    """A text of the repository, without code and quotations."""

    path: str
    line: int
    text: str


def plain(text: str) -> str:
    """Remove inline code, quotations, links and HTML comments from a text."""
    text = re.sub(r"``.+?``|`[^`]*`", "CODE", text, flags=re.DOTALL)
    text = re.sub(r'"[^"\n]*"|“[^”]*”', "QUOTE", text)
    return re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, field texts, comments and messages of a module, with their lines."""
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    is_test = path.is_relative_to(ROOT / TESTS)
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.add(id(node.value))
            for number, paragraph in enumerate(node.value.value.split("\n\n")):
                # A later paragraph may open with a question word after a colon; only the first opens the text.
                yield node.lineno, (paragraph if number == 0 else "… " + paragraph).strip()
    for node in ast.walk(tree):
        if is_test:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.lineno, node.name.replace("_", " ")
            continue
        if isinstance(node, ast.JoinedStr):
            documented.update(id(part) for part in node.values)
            message = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            message = node.value
        else:
            continue
        if len(message.split()) >= WORDS_OF_MESSAGE and "{%" not in message and "SELECT " not in message:
            yield node.lineno, "… " + message
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s?(type:|pyright|noqa|ruff|pragma|!)", token.string):
            yield token.start[0], token.string.lstrip("# ")


def page_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a page, with their lines: no headings, code, quotations or front matter."""
    lines: list[str] = []
    start, in_code = 1, False
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        if re.match(r"\s*(```|~~~)", line):
            in_code = not in_code
        # A row of a table, an item of a list and a heading end the paragraph before.
        opens = re.match(r"\s*([-*|]|\d+\.|#|>|!!!|<!--)", line)
        if (not line.strip() or in_code or opens) and lines:
            yield start, " ".join(lines)
            lines = []
        if in_code or not line.strip() or re.match(r"\s*(#|>|```|~~~|<!--)", line):
            continue
        if not lines:
            start = number
        lines.append(line.strip())


def comment_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments of a shell script or a TOML or YAML file, with their last lines."""
    lines: list[str] = []
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        comment = re.search(r"(?:^|\s)#\s(.*)", line)
        if comment:
            lines.append(comment[1])
        if lines and not re.match(r"\s*#", line):
            yield number, " ".join(lines)
            lines = []


READERS = {".py": python_texts, ".md": page_texts, ".toml": comment_texts, ".yml": comment_texts, "": comment_texts}
"""Reader of the texts of a file by its suffix. Shell scripts have no suffix."""


def texts(paths: list[Path]) -> Iterator[Text]:
    """Yield all texts of files and folders."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(ROOT).as_posix()
            reader = READERS.get(file.suffix)
            if reader is None or "/." in name or not file.is_file():
                continue
            for line, text in reader(file):
                yield Text(name, line, plain(text))


def local_names(paths: list[Path]) -> Iterator[str]:
    """Yield a line for each local variable whose name is in `LOCAL_NAMES`."""
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if not any(file.is_relative_to(ROOT / package) for package in PACKAGES) or file.suffix != ".py":
                continue
            tree = ast.parse(file.read_text("utf-8"))
            # Fields of classes have a text that describes them.
            fields = {
                statement.target
                for node in ast.walk(tree)
                if isinstance(node, ast.ClassDef)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign)
            }
            for node in ast.walk(tree):
                if node in fields:
                    continue
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in LOCAL_NAMES:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: local name {node.id!r}: name the type or the role"


def main() -> int:
    """Print the matches, and return the exit status."""
    paths = [Path(name).resolve() for name in sys.argv[1:]] or [
        ROOT / name for name in (*FOLDERS, *PAGES, "pyproject.toml")
    ]
    rows = [row.split("\t", 1) for row in ALLOWED.read_text("utf-8").splitlines() if "\t" in row]
    unused = {(path, part) for path, part in rows}
    count, problems = 0, list(local_names(paths))
    for text in texts(paths):
        count += 1
        matches = [(match, advice) for pattern, advice in FOUND if (match := pattern.search(text.text))]
        if not matches:
            continue
        allowed = {(path, part) for path, part in rows if path == text.path and part in text.text}
        unused -= allowed
        if not allowed:
            opening = " ".join(text.text.split())[:100]
            problems += [f"{text.path}:{text.line}: {match[0]!r}: {advice}: {opening}" for match, advice in matches]
    if not sys.argv[1:]:
        problems += [f"{ALLOWED.name}: no text matches: {path}: {part}" for path, part in sorted(unused)]
        if len(rows) > count * ALLOWED_SHARE:
            problems.append(f"{ALLOWED.name}: {len(rows)} exceptions of {count} texts, at most 2 %")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(problems)} problems in {count} texts", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
