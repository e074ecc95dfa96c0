"""Limits of the prompt and tool packages, in one table.

A limit protects the process from external data: a file, a model, a server, a template. Before you add a limit, search
for its row here: limits of the same kind, such as characters of a value in a message, share one number.

A constant is next to its code only if its number follows from one algorithm, such as the cost of a step, from Python or
another library, or from a document, such as the API of a provider. The limits of rendering a template, which a program
can change, are in `templates`.
"""

from __future__ import annotations

# Size of data.
MAX_DEPTH = 100
"""Levels of nested data, schemas, prompts or calls."""
MAX_VALUES = 1_000_000
"""Values in one object, counted at all levels: numbers, texts, items of lists and entries of mappings."""
MAX_DIGITS = 4_000
"""Digits of an integer."""
MAX_COUNT = 2**63 - 1
"""Maximum of a count, a position or a number of tokens: the largest integer of 64 bits, which databases can store."""
MAX_ENTRIES = 20_000
"""Entries of a list: files of a folder, imports of a configuration, tools of a server."""
MAX_FOREIGN_NAME_CHARS = 1_000
"""Characters of an external name: an attribute in a template, a tool of a server, a type in a schema."""
MAX_PATH_CHARS = 4_096
"""Characters of a path or a web address."""
MAX_WIRE_NAME_CHARS = 64
"""Characters of the name of a tool or property; every provider accepts a name of this length."""
MAX_INPUT_BYTES = 64_000_000
"""Bytes of one answer or message of a program or server, or of one configuration file."""

# Size of files and texts that users write.
MAX_FILE_BYTES = 1 << 20
"""Bytes of a prompt file."""
MAX_SOURCE_CHARS = 1_000_000
"""Characters of a template, or of the code of a configuration."""
MAX_PATTERN_CHARS = 1_000
"""Characters of a regular expression, of a pattern of file names, or of a format of dates."""
MAX_SCHEMA_PATTERN_CHARS = 10_000
"""Characters of a regular expression in the schema of a tool."""

# Size of error messages.
MAX_SHOWN_CHARS = 80
"""Characters of a value in a message."""
MAX_REASON_CHARS = 300
"""Characters of an external reason or name, which is a part of a message."""
MAX_MESSAGE_CHARS = 1_000
"""Characters of an external message, such as the error text of a server, in a message."""
MAX_LISTED = 20
"""Names or problems in a message."""
MAX_PROBLEMS = 1_000
"""Problems in the attribute `problems` of an error."""
MAX_NAME_CHARS = 64
"""Characters of a name in a message, and of a name that is compared with valid names."""

# Caches.
MAX_CACHED = 256
"""Entries of a cache that all agents of a process share."""
MAX_CACHED_PER_OBJECT = 8
"""Entries of a cache inside one object, such as a context or a conversation."""
