"""The project that the assistant looks at."""


def hello(name: str) -> str:
    return f"Hello, {name}!"
