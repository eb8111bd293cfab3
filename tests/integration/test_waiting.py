"""Waits leave the interpreter free: while one thread waits for native work, the others run."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset_rt as drt
import psutil
import pytest
from support import drt as subject
from support.sources import ListSource, noise

pytestmark = [pytest.mark.slow, pytest.mark.ours]

LARGE = 500_000_000
COMPRESSED = 100_000_000
LEAST_SHARE = 0.8  # of the ticks that the same thread makes in the same time while the main thread sleeps
ATTEMPTS = 12  # a busy machine may starve the other thread now and then


class Ticks:
    """A thread that ticks every millisecond."""

    def __init__(self) -> None:
        self.count, self.done = 0, threading.Event()
        self.thread = threading.Thread(target=self._tick, daemon=True)

    def _tick(self) -> None:
        while not self.done.is_set():
            self.count += 1
            time.sleep(0.001)

    def __enter__(self) -> Ticks:
        self.thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.done.set()
        self.thread.join()

    def during(self, action: Callable[[], object]) -> tuple[int, float, object]:
        """Ticks while an action runs, how long that took in seconds, and what came of it."""
        before, start = self.count, time.perf_counter()
        outcome = action()
        return self.count - before, time.perf_counter() - start, outcome


def assert_leaves_others_running(action: Callable[[], Any]) -> None:
    """Fail when an action keeps another thread from ticking, each time that it is tried."""
    shares = []
    with Ticks() as ticks:
        for _ in range(ATTEMPTS):
            seen, seconds, outcome = ticks.during(action)
            free, _, _ = ticks.during(lambda seconds=seconds: time.sleep(seconds))  # type: ignore[misc]
            del outcome  # giving half a gigabyte back to the system is not the library's time
            gc.collect()
            shares.append(seen / free)
            if shares[-1] >= LEAST_SHARE:
                return
    pytest.fail(f"the other thread got these shares of its ticks: {[round(share, 2) for share in shares]}")


def room_for(folder: Path, size: int) -> None:
    """Skip where a payload cannot be held several times, or stored twice."""
    memory, disk = psutil.virtual_memory().available, shutil.disk_usage(folder).free
    if memory < 5 * size or disk < 3 * size:
        pytest.skip(f"a payload of {size} bytes needs more room than {memory} bytes of memory and {disk} bytes of disk")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    base = tmp_path_factory.mktemp("large")
    room_for(base, LARGE)
    payload = noise("large", LARGE)
    return subject.write(base, "large", [(payload, {"i": 0})]), payload


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_reading_a_large_item_leaves_other_threads_running(large: tuple[Path, bytes], io: str) -> None:
    path, payload = large
    dataset = subject.open_dataset(path, io=io)
    cache_id = dataset.get_metadata()["cache_id"][0]
    assert_leaves_others_running(lambda: dataset.get_item(cache_id, 0))
    assert_leaves_others_running(lambda: next(iter(dataset)))
    assert_leaves_others_running(lambda: dataset.get_many([(cache_id, 0)]))
    assert dataset.get_item(cache_id, 0).data == payload


def test_verifying_a_large_cache_leaves_other_threads_running(large: tuple[Path, bytes]) -> None:
    assert_leaves_others_running(lambda: subject.open_dataset(large[0], validate=True))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_writing_a_large_item_leaves_other_threads_running(large: tuple[Path, bytes], base: Path, kind: Any) -> None:
    payload = kind(large[1])

    def write() -> None:
        shutil.rmtree(base / "w", ignore_errors=True)
        subject.write(base, "w", [(payload, {"i": 0})])

    assert_leaves_others_running(write)
    assert next(iter(subject.open_dataset(base / "w"))).data == large[1]


@pytest.mark.parametrize("algo", ["lz4", "zstd"])
def test_a_large_compressed_item_leaves_other_threads_running(base: Path, algo: str) -> None:
    room_for(base, COMPRESSED)
    payload = noise("compressed", COMPRESSED // 4) * 4
    runtime = subject.runtime()
    config = drt.WriterConfig(shard_compression=drt.ShardCompression(algo=algo), show_progress=False)  # type: ignore[arg-type]

    def write() -> None:
        shutil.rmtree(base / "w", ignore_errors=True)
        (result,) = runtime.write_cache(ListSource("w", [(payload, {"i": 0})]), base, writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess), result

    assert_leaves_others_running(write)
    for io in subject.IO_MODES:
        dataset = subject.open_dataset(base / "w", io=io)
        cache_id = dataset.get_metadata()["cache_id"][0]
        assert_leaves_others_running(lambda dataset=dataset, cache_id=cache_id: dataset.get_item(cache_id, 0))
        assert_leaves_others_running(lambda dataset=dataset: next(iter(dataset)))
        assert dataset.get_item(cache_id, 0).data == payload
    assert_leaves_others_running(lambda: subject.open_dataset(base / "w", validate=True))
