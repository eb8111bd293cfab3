"""Waits leave the interpreter free: while one thread waits for native work, the others run."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import drt as subject
from support.sources import noise

pytestmark = [pytest.mark.slow, pytest.mark.ours]

SOME_TICKS = 0.02  # a millisecond, of the one there could be: a thread that is locked out gets one in a whole call


def share_of_ticks(action: Callable[[], Any]) -> float:
    """Run an action while another thread ticks every millisecond; ticks per millisecond of the action."""
    ticks, done = [0], threading.Event()

    def ticking() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=ticking, daemon=True)
    thread.start()
    while ticks[0] < 3:
        time.sleep(0.001)
    before, start = ticks[0], time.perf_counter()
    action()
    elapsed, seen = time.perf_counter() - start, ticks[0] - before
    done.set()
    thread.join()
    return seen / (elapsed * 1000)


def assert_leaves_others_running(action: Callable[[], Any]) -> None:
    best = 0.0
    for _ in range(40):  # a busy machine may starve the other thread now and then
        best = max(best, share_of_ticks(action))
        if best > SOME_TICKS:
            return
    pytest.fail(f"the other thread got {best:.3f} ticks a millisecond")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    base = tmp_path_factory.mktemp("large")
    payload = noise("large", 200_000_000)
    return subject.write(base, "large", [(payload, {"i": 0})]), payload


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_reading_a_large_item_leaves_other_threads_running(large: tuple[Path, bytes], io: str) -> None:
    path, payload = large
    dataset = subject.open_dataset(path, io=io)
    cache_id = dataset.get_metadata()["cache_id"][0]
    assert_leaves_others_running(lambda: dataset.get_item(cache_id, 0))
    assert_leaves_others_running(lambda: next(iter(dataset)))
    assert dataset.get_item(cache_id, 0).data == payload


def test_verifying_a_large_cache_leaves_other_threads_running(large: tuple[Path, bytes]) -> None:
    assert_leaves_others_running(lambda: subject.open_dataset(large[0], validate=True))


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_writing_a_large_item_leaves_other_threads_running(large: tuple[Path, bytes], base: Path, algo: str) -> None:
    def write() -> None:
        shutil.rmtree(base / "w", ignore_errors=True)
        subject.write(base, "w", [(large[1], {"i": 0})], algo=algo)

    assert_leaves_others_running(write)
