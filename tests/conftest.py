"""Settings of all tests: no real model is reachable, and a commit has the same random cases in each run."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from tests.effort import tries, unless_fresh

ENDPOINT_VARIABLES = (
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AZURE_OPENAI_ENDPOINT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "HF_TOKEN",
    "LITELLM_PROXY_API_BASE",
    "LM_API_TOKEN",
    "OLLAMA_HOST",
    "OPENAI_MODEL",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
)
ENDPOINT_ENDINGS = ("_API_KEY", "_BASE_URL")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the long laws and campaigns too, as CI does")
    parser.addoption("--fresh", action="store_true", help="draw new cases for the laws, not those of this commit")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start four processes more than cores: tests wait for servers and time limits most of the time."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores + 4


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        os.environ["AGENTKIT_ALL_TESTS"] = "1"  # before any test module is read: laws read the number of their cases
    if config.getoption("--fresh"):
        os.environ["AGENTKIT_FRESH_TESTS"] = "1"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the state of a background job, also of its child processes
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [*os.environ]:  # the keys of a developer never reach a test
        if name in ENDPOINT_VARIABLES or name.endswith(ENDPOINT_ENDINGS):
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1,::1"  # no loopback server through a proxy
    examples = unless_fresh(12, tries(15, 20))
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples)
    settings.register_profile("fresh", common)
    settings.register_profile("same", common, derandomize=True, database=None)
    settings.load_profile("fresh" if config.getoption("--fresh") else "same")
    if not config.getoption("--fresh"):
        # Hypothesis also draws constants of the modules that are loaded, which depend on the tests that ran before.
        providers._get_local_constants = providers.Constants


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip long tests, unless all tests are requested or a test is named; otherwise start with long tests.

    So no process waits at the end for another process that has just started a long test.
    """
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
        return
    long = {item: None for item in items if item.get_closest_marker("long")}
    if long:
        config.hook.pytest_deselected(items=[*long])
        items[:] = [item for item in items if item not in long]


def pytest_collectstart() -> None:
    gc.disable()  # collected tests stay: searching for garbage in them takes a quarter of the time


def pytest_collection_finish() -> None:
    """Exclude the objects of the collection from the garbage collector, a million objects, and run it less often."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half of a surrogate pair in a captured log cannot be sent from one process to another."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Disable the garbage collector while times are compared: garbage of other tests takes up to a second."""
    if not hasattr(pyfuncitem.module, "process_time"):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def place_of_inner_pytests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pytest closes the folder that contains its own folder, in which servers of other users may run for this run."""
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("inner-pytest"))


HOUSE = Path(__file__).parent / "house"
"""Tests of the layout of the code, which do not run it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Laws and long tests run hundreds of cases: the other tests measure the coverage, in half the time.

    The tracer itself is removed, here and in new threads: the mark of pytest-cov stops only one of the two tracers of a
    worker.
    """
    tracers = sys.gettrace(), threading.gettrace()
    marked = item.get_closest_marker("untraced") or item.get_closest_marker("long")
    untraced = marked or item.path.is_relative_to(HOUSE) or is_hypothesis_test(getattr(item, "obj", None))
    if untraced:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    try:
        return (yield)
    finally:
        if untraced:
            sys.settrace(tracers[0])
            threading.settrace(tracers[1])  # type: ignore[arg-type]
