"""Closing, context managers, the default runtime, and how things show themselves."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import run_script
from support.sources import ListSource, noise, ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def test_a_closed_runtime_does_nothing_more_and_its_datasets_live_on(base: Path) -> None:
    with drt.DatasetRuntime(num_workers=2) as runtime:
        (result,) = runtime.write_cache(ListSource("a", ten_rows()), base, writer_config=subject.writer_config())
        assert isinstance(result, drt.CacheWriteSuccess)
        dataset = runtime.cached_dataset([result.path], reader_config=subject.reader_config())
    runtime.close()
    assert subject.ids(dataset) == list(range(10))
    assert runtime.num_workers == 2 and "closed" in repr(runtime)
    calls = [
        lambda: runtime.write_cache(ListSource("b", ten_rows()), base),
        lambda: runtime.cached_dataset([result.path], reader_config=subject.reader_config()),
        lambda: runtime.from_cache_sources(ListSource("a", ten_rows()), base, reader_config=subject.reader_config()),
    ]
    for call in calls:
        with pytest.raises(drt.InvalidInputError, match="closed") as caught:
            call()
        assert caught.value.kind == "closed"
    assert not (base / "b").exists()


def test_a_closed_dataset_does_nothing_more_and_its_iterators_live_on(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    with subject.open_dataset(path) as dataset:
        iterator, table = iter(dataset), dataset.get_metadata()
        cache_id = table["cache_id"][0]
        next(iterator)
    dataset.close()
    assert subject.ids(iterator) == list(range(1, 10))
    assert table["i"].to_list() == list(range(10))
    assert "closed" in repr(dataset) and "closed" in dataset._repr_html_()
    assert dataset.cache_paths == [path]
    calls = [
        lambda: iter(dataset),
        lambda: len(dataset),
        lambda: dataset.get_item(cache_id, 0),
        lambda: dataset.get_many([(cache_id, 0)]),
        dataset.get_metadata,
        lambda: dataset.update_metadata(table),
        lambda: dataset.set_epoch_len(3),
        lambda: dataset.update_manifests(3),
    ]
    for call in calls:
        with pytest.raises(drt.InvalidInputError, match="closed"):
            call()


def test_closing_a_dataset_lets_go_of_its_files(base: Path) -> None:
    path = subject.write(base, "a", [(noise(str(i), 1000), {"i": i}) for i in range(50)], max_shard_bytes=5000)

    def held() -> list[str]:
        with open("/proc/self/maps") as maps:
            mapped = [line for line in maps if str(path) in line]
        descriptors = os.listdir("/proc/self/fd")
        links = [os.readlink(f"/proc/self/fd/{name}") for name in descriptors if os.path.lexists(f"/proc/self/fd/{name}")]
        return mapped + [link for link in links if str(path) in link]

    dataset = subject.open_dataset(path)
    assert len(list(dataset)) == 50 and held()
    dataset.close()
    assert held() == []


@pytest.mark.parametrize("size", [10, 5000, 50_000])
def test_a_closed_iterator_yields_nothing_more(base: Path, size: int) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", [(bytes(size), {"i": i}) for i in range(200)]))
    with contextlib.closing(iter(dataset)) as iterator:
        assert subject.ids([next(iterator), next(iterator)]) == [0, 1]
    iterator.close()
    assert list(iterator) == [] and iterator.__length_hint__() == 0
    with iter(dataset) as second:
        next(second)
    assert list(second) == []
    assert subject.ids(dataset) == list(range(200))


def test_leaving_a_block_by_an_exception_closes_and_lets_it_through(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    with (
        pytest.raises(ZeroDivisionError),
        drt.DatasetRuntime(num_workers=1) as runtime,
        runtime.cached_dataset([path], reader_config=subject.reader_config()) as dataset,
        iter(dataset) as iterator,
    ):
        raise ZeroDivisionError
    assert list(iterator) == []
    assert "closed" in repr(runtime) and "closed" in repr(dataset)


def test_a_runtime_has_a_thread_for_each_processor_that_the_process_may_use() -> None:
    # A control group may allow less than the affinity does.
    assert 1 <= drt.DatasetRuntime().num_workers <= len(os.sched_getaffinity(0))
    script = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import dataset_rt
report([dataset_rt.DatasetRuntime().num_workers, dataset_rt.DatasetRuntime(num_workers="auto").num_workers])
"""
    assert run_script(script) == [1, 1]


@pytest.mark.parametrize("given", [None, "all", 2.0])
def test_other_words_are_no_number_of_threads(given: Any) -> None:
    with pytest.raises(TypeError):
        drt.DatasetRuntime(num_workers=given)


def test_a_dataset_shows_itself_in_few_lines_whatever_its_columns(base: Path) -> None:
    names = [f"column {number}" for number in range(40)] + ["with\nnewlines\n" * 20, "<b>&amp;", "x" * 5000]
    path = subject.write(base, "a", [(b"", dict.fromkeys(names, 1))])
    dataset = subject.open_dataset(path, shuffle=True, seed=9)
    assert len(repr(dataset).splitlines()) <= 12 and len(repr(dataset)) < 2000
    for part in ("1 cache", "1 samples", "seed 9", "more"):
        assert part in repr(dataset) and part in dataset._repr_html_()
    narrow = subject.open_dataset(subject.write(base, "b", [(b"", {"<b>&amp;": 1})]))
    assert "<b>" not in narrow._repr_html_() and "&lt;b&gt;&amp;amp;" in narrow._repr_html_()
    assert len(narrow._repr_html_().splitlines()) <= 12


def test_showing_a_dataset_reads_no_payload(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    dataset = subject.open_dataset(path)
    for shard in (path / "shards").iterdir():
        os.truncate(shard, 0)  # whoever looks at a payload now dies of it
    assert "10 samples" in repr(dataset) and "10 samples" in dataset._repr_html_()


def test_a_long_epoch_in_table_order_never_runs_out(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(5)))
    dataset.set_epoch_len(sys.maxsize)
    firsts = [next(iter(dataset)).sample_id for _ in range(6)]
    assert firsts == [sys.maxsize * number % 5 for number in range(6)]


class Half:
    """A number that is no integer and says so when asked, as tensors do."""

    def __index__(self) -> int:
        raise TypeError("only integers can be an index")

    def __float__(self) -> float:
        return 0.5


def test_numbers_that_refuse_to_be_an_index_are_floats(base: Path) -> None:
    path = subject.write(base, "a", [(b"", {"x": Half()})])
    (sample,) = subject.open_dataset(path)
    assert sample.metadata == {"x": 0.5}


def test_arrays_without_dimensions_are_numbers(base: Path) -> None:
    numpy = pytest.importorskip("numpy")
    given = {"f": numpy.array(1.5), "i": numpy.array(3), "b": numpy.array(True)}
    (sample,) = subject.open_dataset(subject.write(base, "a", [(b"", given)]))
    assert sample.metadata == {"b": True, "f": 1.5, "i": 3}
    assert "ndarray" in subject.write_error(base, "b", [(b"", {"x": numpy.array([1.5])})])


class Interrupting:
    def __float__(self) -> float:
        raise KeyboardInterrupt


def test_an_interrupt_while_a_value_is_converted_ends_the_call(base: Path) -> None:
    sources = [ListSource("a", [(b"", {"x": Interrupting()})]), ListSource("b", ten_rows())]
    with pytest.raises(KeyboardInterrupt):
        subject.write_results(base, sources)
    assert not (base / "a").exists() and not (base / "b").exists() and subject.leftovers(base) == []
