"""Payloads of some kilobytes are copied by the runtime's threads before their turn: nobody can tell, except by the clock."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import run_script
from support.damage import assert_names_the_record, flip, place
from support.sources import ListSource, noise

pytestmark = [pytest.mark.quick]

#: Around every threshold: small, just below and at "large", whole portions, one sample per portion, past the map.
SIZES = [0, 1, 200, 2047, 2048, 2049, 4096, 5000, 31_000, 32_768, 40_000, 131_071, 131_072, 300_000]


def rows(sizes: list[int]) -> list[Any]:
    return [(noise(f"ahead-{i}", size), {"i": i}) for i, size in enumerate(sizes)]


@pytest.fixture(scope="module")
def mixtures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[bytes]]]:
    """Caches of equal, alternating and shuffled payload sizes."""
    base = tmp_path_factory.mktemp("mixtures")
    kinds = {
        "equal": [4096] * 150,
        "alternating": [100, 9000] * 60,
        "every size": SIZES * 6,
        "one": [50_000],
        "large last": [300] * 70 + [4000] * 70,
    }
    made = {}
    for name, sizes in kinds.items():
        content = rows(sizes)
        made[name] = subject.write(base, name.replace(" ", "-"), content, max_shard_bytes=1_000_000), [row[0] for row in content]
    return made


@pytest.mark.parametrize("kind", ["equal", "alternating", "every size", "one", "large last"])
@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 64), (2, 2), (2, 64), (5, 7), (3, 1000)])
def test_samples_are_what_was_written(mixtures: Any, kind: str, io: str, workers: int, prefetch: int) -> None:
    path, payloads = mixtures[kind]
    dataset = subject.open_dataset(path, num_workers=workers, prefetch=prefetch, io=io)
    for _ in range(2):  # the second pass finds every record checked
        seen = list(dataset)
        assert subject.ids(seen) == list(range(len(payloads)))
        assert [sample.data for sample in seen] == payloads
    dataset = subject.open_dataset(path, num_workers=workers, prefetch=prefetch, io=io, shuffle=True, seed=3)
    assert all(sample.data == payloads[sample.sample_id] for sample in itertools.chain(dataset, dataset))


def test_an_exhausted_iterator_stays_so(mixtures: Any) -> None:
    for path, payloads in mixtures.values():
        iterator = iter(subject.open_dataset(path))
        assert sum(1 for _ in iterator) == len(payloads)
        assert list(iterator) == [] and next(iterator, None) is None
        if subject.IS_OURS:
            assert iterator.__length_hint__() == 0


@pytest.mark.ours
def test_the_length_hint_counts_down_by_one(mixtures: Any) -> None:
    path, payloads = mixtures["every size"]
    iterator = iter(subject.open_dataset(path))
    hints = [iterator.__length_hint__() for _ in iterator]
    assert hints == list(range(len(payloads) - 1, -1, -1))


@pytest.mark.ours
@pytest.mark.parametrize("row", [0, 1, 40, 63, 64, 149])
@pytest.mark.parametrize("size", [4096, 40_000])
@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_damaged_record_is_an_error_at_its_turn(base: Path, io: str, size: int, row: int) -> None:
    path = subject.write(base, "a", rows([size] * 150))
    shard, offset, length = place(path, row)
    flip(shard, offset + length // 2)
    dataset = subject.open_dataset(path, io=io)
    iterator, seen = iter(dataset), []
    with pytest.raises(drt.CorruptCacheError) as caught:
        for sample in iterator:
            seen.append(sample.sample_id)
    assert seen == list(range(row))
    assert_names_the_record(caught.value, path, row)
    assert list(iterator) == []
    flip(shard, offset + length // 2)
    assert subject.ids(dataset) == list(range(150))


@pytest.mark.ours
@pytest.mark.parametrize("size", [4096, 40_000])
def test_get_many_reads_large_payloads_and_tells_of_a_damaged_one(base: Path, size: int) -> None:
    content = rows([size, 10, size, 300] * 50)
    path = subject.write(base, "a", content)
    dataset = subject.open_dataset(path)
    cache_id = next(iter(dataset)).cache_id
    wanted = [(cache_id, row * 7 % 200) for row in range(450)]
    assert [sample.data for sample in dataset.get_many(wanted)] == [content[row][0] for _, row in wanted]
    shard, offset, length = place(path, 100)
    flip(shard, offset + length // 2)
    fresh = subject.open_dataset(path)
    with pytest.raises(drt.CorruptCacheError) as caught:
        fresh.get_many(wanted)
    assert_names_the_record(caught.value, path, 100)


@pytest.mark.ours
@pytest.mark.parametrize("kind", ["equal", "every size"])
@pytest.mark.parametrize("count", [1, 7, 64, 1000])
def test_many_are_taken_at_once_as_one_by_one(mixtures: Any, kind: str, count: int) -> None:
    path, payloads = mixtures[kind]
    dataset = subject.open_dataset(path)
    iterator, seen = iter(dataset), []
    assert iterator.take(0) == []
    while batch := iterator.take(count):
        assert len(batch) == min(count, len(payloads) - len(seen))
        seen += batch
        assert iterator.__length_hint__() == len(payloads) - len(seen)
    assert [sample.data for sample in seen] == payloads
    assert iterator.take(1) == [] and list(iterator) == []


@pytest.mark.ours
def test_a_damaged_record_among_those_taken_at_once_ends_the_iterator(base: Path) -> None:
    path = subject.write(base, "a", rows([4096] * 150))
    shard, offset, length = place(path, 100)
    flip(shard, offset + length // 2)
    dataset = subject.open_dataset(path)
    iterator = iter(dataset)
    assert [sample.sample_id for sample in iterator.take(90)] == list(range(90))
    with pytest.raises(drt.CorruptCacheError) as caught:
        iterator.take(20)
    assert_names_the_record(caught.value, path, 100)
    assert iterator.take(20) == []
    with pytest.raises(OverflowError):
        iter(dataset).take(-1)


def test_iterators_may_be_dropped_while_payloads_are_on_their_way(mixtures: Any) -> None:
    path, payloads = mixtures["every size"]
    runtime = subject.runtime(2)
    dataset = runtime.cached_dataset([path], reader_config=subject.reader_config())
    for taken in range(60):
        samples = list(itertools.islice(iter(dataset), taken))
        gc.collect()
        assert all(sample.data == payloads[sample.sample_id] for sample in samples)


@pytest.mark.ours  # the public package lets one of the threads fail
def test_threads_may_share_an_iterator_of_large_samples(mixtures: Any) -> None:
    path, payloads = mixtures["equal"]
    iterator, seen = iter(subject.open_dataset(path)), []

    def take() -> None:
        seen.extend((sample.sample_id, sample.data) for sample in iterator)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(enumerate(payloads))


def assert_child_goes_on(iterator: Any, payloads: list[bytes]) -> None:
    """Fork: the child gets the rest of the payloads from the iterator, or is told that it was forked, but never waits."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            status = 0 if [sample.data for sample in iterator] == payloads else 2
        except drt.ForkedProcessError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.ours  # the public package waits for threads that are not there
def test_a_forked_child_goes_on_without_the_threads(mixtures: Any) -> None:
    path, payloads = mixtures["equal"]
    iterator = iter(subject.open_dataset(path))
    first = [next(iterator).data for _ in range(40)]
    assert_child_goes_on(iterator, payloads[40:])
    assert first + [sample.data for sample in iterator] == payloads


@pytest.mark.ours
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_child_that_is_forked_while_payloads_are_copied_does_not_wait_for_them(base: Path, algo: str) -> None:
    size, count = 6_000_000, 8
    path = subject.write(base, "large", rows([size] * count), algo=algo)
    dataset = subject.open_dataset(path)
    wanted = [sample.data for sample in dataset]
    for _ in range(8):
        iterator = iter(dataset)
        assert next(iterator).data == wanted[0]
        assert_child_goes_on(iterator, wanted[1:])  # the next payloads are on their way now
        assert [sample.data for sample in iterator] == wanted[1:]


@pytest.mark.ours
def test_a_lack_of_memory_is_an_error_at_its_turn_and_loses_no_sample(base: Path) -> None:
    sizes = [5000] * 40 + [400_000_000] + [5000] * 40
    path = subject.write(base, "a", [(bytes(size), {"i": i}) for i, size in enumerate(sizes)])
    script = """
import resource
from support import drt
dataset = drt.open_dataset(ARGS["path"], io="pread")
first = next(iter(dataset))
dataset = drt.open_dataset(ARGS["path"])
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 250_000_000, resource.RLIM_INFINITY))
seen, error = [], None
try:
    for sample in dataset:
        seen.append(sample.sample_id)
except MemoryError:
    error = "MemoryError"
report([seen, error])
"""
    assert run_script(script, {"path": str(path)}) == [list(range(40)), "MemoryError"]


class Interrupted(Exception):
    pass


@pytest.mark.ours
def test_a_signal_is_heard_at_once_and_not_after_what_is_ahead(base: Path) -> None:
    path = subject.write(base, "a", rows([40_000] * 300))
    dataset = subject.open_dataset(path, io="pread", prefetch=64)

    def handler(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for delay in (0.001, 0.003, 0.01):
            iterator = iter(dataset)
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(Interrupted):
                while True:
                    for _ in iterator:
                        pass
                    iterator = iter(dataset)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert subject.ids(iter(subject.open_dataset(path))) == list(range(300))


@pytest.mark.ours
def test_a_busy_pool_delays_no_reader(base: Path, mixtures: Any) -> None:
    """The only thread waits in a source that needs samples itself: whoever wants a payload then copies it."""
    path, payloads = mixtures["equal"]
    runtime = subject.runtime(1)
    dataset = runtime.cached_dataset([path], reader_config=subject.reader_config())
    source = ListSource("again", ((sample.data, sample.metadata) for sample in dataset))
    (result,) = runtime.write_cache(source, base, writer_config=subject.writer_config("lz4"))
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert [sample.data for sample in subject.open_dataset(result.path)] == payloads


@pytest.mark.ours
def test_large_payloads_ahead_are_bounded_by_threads_and_prefetch_size(base: Path) -> None:
    size, count = 1_000_000, 40
    path = subject.write(base, "large", rows([size] * count))
    for workers, prefetch, ahead in [(2, 64, 2), (8, 3, 3), (1, 1, 1)]:
        dataset = subject.open_dataset(path, num_workers=workers, prefetch=prefetch)
        iterator = iter(dataset)
        tracemalloc.start()
        try:
            for sample in iterator:
                del sample
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The consumer's, the next one while that is still held, and those ahead.
        assert peak < (ahead + 2.5) * size, f"{workers} workers, prefetch {prefetch}: {peak / size:.1f} samples at once"
