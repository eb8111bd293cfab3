"""Fixtures and house rules for the whole Python suite. `tests/README.md` says how to run it."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
for folder in (TESTS / "spec", TESTS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

HANG_SECONDS = 300  # one test may never take this long; the stacks are dumped and the run ends

MARKERS = {
    "quick": "small, needs only polars, pydantic and pytest; run on every Python version",
    "ours": "promises of our library that the public package does not make",
    "oracle": "compares with the public package, which runs in an environment of its own",
    "slow": "takes seconds rather than milliseconds",
}


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and all processes that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, do not even import test files that have no quick test: they may need more packages."""
    expression = config.option.markexpr
    if (
        not re.search(r"\bquick\b", expression)
        or re.search(r"\bnot quick\b|\bor\b", expression)
        or not re.fullmatch(r"test_.*\.py", collection_path.name)
    ):
        return None
    return None if "mark.quick" in collection_path.read_text(encoding="utf-8") else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "oracle_interpreter" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(autouse=True)
def hang_guard() -> Iterator[None]:
    """End the run with every thread's stack when a test hangs."""
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of the golden caches."""
    return TESTS / "golden"


class Oracle:
    """The public package behind `oracle/oracle_driver.py`."""

    def __init__(self, interpreter: list[str]) -> None:
        from support.child import Lines

        self._lines = Lines([*interpreter, "-u", str(TESTS / "oracle" / "oracle_driver.py")])

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The raw answer: `{"ok": ...}` or `{"error": {"type", "message"}}`."""
        return self._lines.ask({"do": do, **request})

    def __call__(self, do: str, **request: Any) -> Any:
        """The value of an answer that must be a success."""
        answer = self.ask(do, **request)
        assert "ok" in answer, answer
        return answer["ok"]

    def write(self, base: Path, sources: list[dict[str, Any]], **options: Any) -> list[Path]:
        """Write described sources, all of which must succeed; returns their folders."""
        results = self("write", base=str(base), sources=sources, **options)
        assert all(kind == "CacheWriteSuccess" for kind, _, _ in results), results
        return [Path(path) for _, _, path in results]

    def close(self) -> None:
        self._lines.close()


@pytest.fixture(scope="session")
def oracle_interpreter() -> list[str]:
    """The command of the interpreter that has the public package 0.4.8.

    A machine that cannot build it fails these tests: compatibility that was not checked is not a pass. Set
    DRT_NO_ORACLE=1 to skip them knowingly.
    """
    if os.environ.get("DRT_NO_ORACLE") == "1":
        pytest.skip("DRT_NO_ORACLE=1: the public package is not compared with")
    sys.path.insert(0, str(TESTS / "oracle"))
    from make_env import ensure_env

    return [str(ensure_env()), "-E"]  # -E: a PYTHONPATH that leads to our library must not lead the oracle there


@pytest.fixture(scope="session")
def oracle(oracle_interpreter: list[str]) -> Iterator[Oracle]:
    """The public package 0.4.8 in its own interpreter, as a service."""
    running = Oracle(oracle_interpreter)
    assert running("version") == "0.4.8"
    yield running
    running.close()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An empty base folder for caches."""
    folder = tmp_path / "caches"
    folder.mkdir()
    return folder
