"""Several threads on one dataset, and what threads and iterators leave behind: nothing."""

from __future__ import annotations

import collections
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import drt as subject
from support import values
from support.child import run_script
from support.sources import ListSource, mini, ten_rows

pytestmark = pytest.mark.quick


def run_threads(actions: list[Callable[[], None]]) -> list[BaseException]:
    """Run actions at the same time; returns what they raised. A thread that hangs fails the test."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(actions))

    def guarded(action: Callable[[], None]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:  # panics too
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=90)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return errors


@pytest.fixture
def quick_switches() -> Any:
    """Make the interpreter switch threads very often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_loops_in_several_threads_get_whole_windows(base: Path, algo: str, shuffle: bool, quick_switches: None) -> None:
    path = subject.write(base, "a", mini(500), algo=algo)
    rounds, threads = 3, 4
    whole = subject.open_dataset(path, shuffle=shuffle, seed=1)
    whole.set_epoch_len(500 * rounds * threads)
    stream = subject.ids(whole)
    windows = collections.Counter(tuple(stream[i : i + 500]) for i in range(0, len(stream), 500))
    dataset = subject.open_dataset(path, shuffle=shuffle, seed=1)
    seen: list[tuple[int, ...]] = []

    def loop() -> None:
        for _ in range(rounds):
            seen.append(tuple(subject.ids(dataset)))

    assert run_threads([loop] * threads) == []
    assert collections.Counter(seen) == windows


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_one_iterator_shared_by_threads_gives_each_sample_once(base: Path, algo: str, io: str, quick_switches: None) -> None:
    path = subject.write(base, "a", mini(3000), algo=algo, max_shard_bytes=30_000)
    iterator = iter(subject.open_dataset(path, io=io))
    seen: list[Any] = []

    def pull() -> None:
        for sample in iterator:
            seen.append((sample.sample_id, sample.data, sample.metadata["i"]))

    assert run_threads([pull] * 4) == []
    rows = mini(3000)
    assert sorted(seen) == [(i, rows[i][0], i) for i in range(3000)]


def test_items_tables_and_updates_from_many_threads(base: Path, quick_switches: None) -> None:
    rows = mini(200)
    dataset = subject.open_dataset(subject.write(base, "a", rows))
    table = dataset.get_metadata()
    cache_id = table["cache_id"][0]
    stop = time.monotonic() + 1.0

    def items() -> None:
        number = 0
        while time.monotonic() < stop:
            number = (number + 7) % 200
            assert dataset.get_item(cache_id, number).data == rows[number][0]

    def tables() -> None:
        while time.monotonic() < stop:
            assert dataset.get_metadata().height in (200, 50)

    def updates() -> None:
        while time.monotonic() < stop:
            dataset.update_metadata(table.head(50))
            dataset.update_metadata(table)

    def loops() -> None:
        while time.monotonic() < stop:
            samples = list(dataset)
            assert len(samples) in (200, 50)
            assert all(sample.data == rows[sample.sample_id][0] for sample in samples)

    assert run_threads([items, tables, updates, loops, loops]) == []


def test_two_writes_of_one_runtime_at_the_same_time(base: Path) -> None:
    runtime = subject.runtime(2)
    config = subject.writer_config(max_shard_bytes=5000)

    def writing(name: str) -> Callable[[], None]:
        def action() -> None:
            (result,) = runtime.write_cache(ListSource(name, mini(1500)), base, writer_config=config)
            assert isinstance(result, subject.api.CacheWriteSuccess), result

        return action

    assert run_threads([writing(name) for name in "abcd"]) == []
    for name in "abcd":
        assert [(sample.data, sample.metadata) for sample in subject.open_dataset(base / name)] == mini(1500)


def counts() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def settle(expected: tuple[int, int]) -> tuple[int, int]:
    """Wait until threads and descriptors are back at a baseline, or give up."""
    deadline = time.monotonic() + 60
    while not no_more(seen := counts(), expected) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    return seen


def no_more(seen: tuple[int, int], expected: tuple[int, int]) -> bool:
    return seen[0] <= expected[0] and seen[1] <= expected[1]


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_dropped_iterators_leave_nothing(base: Path, algo: str, io: str) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", mini(1000), algo=algo), io=io)

    def rounds(number: int) -> None:
        for _ in range(number):
            for _sample in dataset:
                break

    for _ in range(4):
        list(dataset)  # every thread has opened what it opens
    rounds(5)
    gc.collect()
    time.sleep(0.2)
    baseline = counts()
    resident = resident_bytes()
    rounds(200)
    assert no_more(settle(baseline), baseline)
    assert resident_bytes() - resident < 30_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_runtime_starts_its_threads_when_it_is_made() -> None:
    script = """
import os
from support import drt
before = len(os.listdir("/proc/self/task"))
runtime = drt.runtime(7)
report(len(os.listdir("/proc/self/task")) - before)
"""
    assert run_script(script) >= 7


def test_threads_and_files_end_with_the_last_user_of_a_runtime(base: Path) -> None:
    path = subject.write(base, "a", mini(400), max_shard_bytes=1000)
    list(subject.open_dataset(path))  # whatever is made once per process is made now
    gc.collect()
    baseline = counts()
    datasets = [subject.open_dataset(path, num_workers=4) for _ in range(5)]
    iterators = [iter(dataset) for dataset in datasets]
    for iterator in iterators:
        next(iterator)
    del datasets, iterators, iterator
    assert no_more(settle(baseline), baseline)


def test_digests_of_one_dataset_agree_whoever_reads(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(200))
    dataset = subject.open_dataset(path)
    seen: list[str] = []
    assert run_threads([lambda: seen.append(values.digest(dataset))] * 4) == []
    assert len(set(seen)) == 1
