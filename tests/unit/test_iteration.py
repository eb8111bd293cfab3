"""Windows, cursors and snapshots: what an iterator emits and when it decides so."""

from __future__ import annotations

import copy
import gc
import itertools
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.sources import mini, ten_rows

pytestmark = pytest.mark.quick


def five(base: Path, **options: Any) -> Any:
    return subject.open_dataset(subject.write(base, "a", ten_rows(5)), **options)


@pytest.fixture(params=subject.IO_MODES)
def dataset(base: Path, request: pytest.FixtureRequest) -> Any:
    """Five rows in order."""
    return five(base, io=request.param)


def with_length(dataset: Any, length: int) -> Any:
    dataset.set_epoch_len(length)
    return dataset


def test_default_window_is_every_row_once(dataset: Any) -> None:
    assert len(dataset) == 5
    for _ in range(3):
        assert subject.ids(dataset) == [0, 1, 2, 3, 4]


def test_windows_follow_each_other_and_wrap_around(dataset: Any) -> None:
    with_length(dataset, 2)
    assert [subject.ids(dataset) for _ in range(4)] == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_a_window_may_be_longer_than_the_table(dataset: Any) -> None:
    with_length(dataset, 12)
    assert subject.ids(dataset) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert next(iter(dataset)).sample_id == 2


def test_length_is_the_window_of_the_next_iterator(dataset: Any) -> None:
    iterator = iter(dataset)
    next(iterator)
    dataset.set_epoch_len(3)
    assert len(dataset) == 3
    assert len(list(iterator)) == 4


def test_setting_the_length_moves_no_cursor(dataset: Any) -> None:
    assert subject.ids(with_length(dataset, 3)) == [0, 1, 2]
    with_length(dataset, 1)
    with_length(dataset, 2)
    assert subject.ids(dataset) == [3, 4]


@pytest.mark.parametrize("shuffle", [False, True])
def test_windows_join_to_one_stream(base: Path, shuffle: bool) -> None:
    path = subject.write(base, "a", ten_rows(7))
    whole = with_length(subject.open_dataset(path, shuffle=shuffle, seed=3), 60)
    pieces = subject.open_dataset(path, shuffle=shuffle, seed=3)
    joined: list[int] = []
    for length in (1, 2, 5, 9, 20, 23):
        joined += subject.ids(with_length(pieces, length))
    assert joined == subject.ids(whole)


@pytest.mark.parametrize("wrong", [0, -1])
def test_length_below_one_is_refused(dataset: Any, wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        dataset.set_epoch_len(wrong)
    assert len(dataset) == 5


@pytest.mark.parametrize("wrong", [1.0, "1", None, [1]])
def test_length_is_an_integer(dataset: Any, wrong: Any) -> None:
    with pytest.raises(TypeError):
        dataset.set_epoch_len(wrong)
    assert len(dataset) == 5


@pytest.mark.parametrize("wrong", [2**64, 2**70])
def test_length_beyond_64_bits_is_refused(dataset: Any, wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        dataset.set_epoch_len(wrong)
    assert len(dataset) == 5


@pytest.mark.ours
@pytest.mark.parametrize("wrong", [2**63, 2**64 - 1])
def test_length_that_python_cannot_say_is_refused_before_it_takes_effect(dataset: Any, wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        dataset.set_epoch_len(wrong)
    assert len(dataset) == 5 and subject.ids(dataset) == [0, 1, 2, 3, 4]


def test_true_counts_as_one(dataset: Any) -> None:
    assert len(with_length(dataset, True)) == 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_huge_window_starts_at_once(base: Path, shuffle: bool) -> None:
    dataset = with_length(five(base, shuffle=shuffle), 2**62)
    assert len(dataset) == 2**62
    assert len(list(itertools.islice(dataset, 1000))) == 1000


@pytest.mark.ours
def test_iter_takes_the_window_and_the_snapshot(dataset: Any) -> None:
    with_length(dataset, 2)
    first, second = iter(dataset), iter(dataset)
    dataset.set_epoch_len(1)
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert subject.ids(second) == [2, 3]  # started first, created second
    assert subject.ids(first) == [0, 1]
    assert subject.ids(dataset) == [4, 3, 2, 1, 0]


def test_a_started_iterator_keeps_its_table_and_length(dataset: Any) -> None:
    iterator = iter(dataset)
    assert next(iterator).sample_id == 0
    dataset.set_epoch_len(1)
    dataset.update_metadata(dataset.get_metadata()[3:])
    assert subject.ids(iterator) == [1, 2, 3, 4]
    assert subject.ids(dataset) == [3, 4]


@pytest.mark.parametrize("shuffle", [False, True])
def test_interleaved_iterators_have_a_window_each(base: Path, shuffle: bool) -> None:
    path = subject.write(base, "a", ten_rows(5))
    stream = subject.ids(with_length(subject.open_dataset(path, shuffle=shuffle, seed=1), 6))
    dataset = with_length(subject.open_dataset(path, shuffle=shuffle, seed=1), 2)
    a, b, c = iter(dataset), iter(dataset), iter(dataset)
    seen = [next(each).sample_id for each in (a, b, c, a, b, c)]
    assert seen == [stream[i] for i in (0, 2, 4, 1, 3, 5)]
    for each in (a, b, c):
        with pytest.raises(StopIteration):
            next(each)


@pytest.mark.parametrize("how", ["dropped", "closed", "sliced", "broken off"])
def test_the_rest_of_an_abandoned_window_is_gone(dataset: Any, how: str) -> None:
    with_length(dataset, 2)
    if how == "broken off":
        for _ in dataset:
            break
    elif how == "sliced":
        assert len(list(itertools.islice(dataset, 1))) == 1
    else:
        iterator = iter(dataset)
        next(iterator)
        if how == "closed" and hasattr(iterator, "close"):
            iterator.close()
        del iterator
    gc.collect()
    assert subject.ids(dataset) == [2, 3]


@pytest.mark.ours
def test_an_iterator_that_never_started_has_used_its_window(dataset: Any) -> None:
    with_length(dataset, 2)
    iter(dataset)
    gc.collect()
    assert subject.ids(dataset) == [2, 3]


def test_a_finished_iterator_stays_finished(dataset: Any) -> None:
    iterator = iter(dataset)
    assert len(list(iterator)) == 5
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)
    assert list(iterator) == []


def test_an_iterator_is_its_own_iterator(dataset: Any) -> None:
    iterator = iter(dataset)
    assert iter(iterator) is iterator


def test_an_iterator_outlives_its_dataset_and_runtime(base: Path) -> None:
    dataset = five(base)
    iterator = iter(dataset)
    next(iterator)
    del dataset
    gc.collect()
    assert subject.ids(iterator) == [1, 2, 3, 4]


def test_a_dataset_outlives_its_runtime(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(5))
    runtime = subject.runtime()
    dataset = runtime.cached_dataset([path], reader_config=subject.reader_config())
    del runtime
    gc.collect()
    assert subject.ids(dataset) == [0, 1, 2, 3, 4]
    assert dataset.get_metadata().height == 5


def test_samples_outlive_everything(base: Path) -> None:
    import shutil

    path = subject.write(base, "a", mini(300))
    samples = list(subject.open_dataset(path))
    gc.collect()
    shutil.rmtree(path)
    assert [(sample.data, sample.metadata) for sample in samples] == mini(300)


def test_containment_is_a_scan_that_uses_a_window_up(dataset: Any) -> None:
    with_length(dataset, 2)
    assert "no such sample" not in dataset
    assert subject.ids(dataset) == [2, 3]


def test_a_dataset_is_no_sequence(dataset: Any) -> None:
    with pytest.raises(TypeError):
        dataset[0]
    with pytest.raises(TypeError):
        dataset[0] = 1


def test_paths_and_configuration_are_given_back(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(2))
    config = subject.reader_config(seed=9, prefetch=3)
    dataset = subject.runtime().cached_dataset([str(path)], reader_config=config)
    assert dataset.reader_config == config
    assert dataset.cache_paths == [path] and isinstance(dataset.cache_paths[0], Path)
    dataset.cache_paths.append("more")
    assert subject.ids(dataset) == [0, 1]  # it is a list for the caller, not the dataset's own


def test_datasets_of_one_runtime_do_not_share_cursors(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(5))
    runtime = subject.runtime()
    first, second = (runtime.cached_dataset([path], reader_config=subject.reader_config()) for _ in range(2))
    with_length(first, 2)
    with_length(second, 3)
    assert (subject.ids(first), subject.ids(second), subject.ids(first)) == ([0, 1], [0, 1, 2], [2, 3])


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pass_over_another_dataset_in_mid_epoch_disturbs_neither(base: Path, shuffle: bool) -> None:
    runtime = subject.runtime()
    paths = {name: subject.write(base, name, mini(count)) for name, count in (("train", 500), ("validation", 50))}

    def opened(name: str) -> Any:
        return runtime.cached_dataset([paths[name]], reader_config=subject.reader_config(shuffle=shuffle, seed=4))

    alone = {name: subject.ids(opened(name)) for name in paths}
    train, validation = iter(opened("train")), opened("validation")
    seen = [next(train).sample_id for _ in range(40)]
    assert subject.ids(validation) == alone["validation"]
    assert seen + subject.ids(train) == alone["train"]


def test_shuffled_draws_come_with_replacement_from_the_whole_table(base: Path) -> None:
    dataset = with_length(subject.open_dataset(subject.write(base, "a", ten_rows()), shuffle=True, seed=1), 400)
    drawn = subject.ids(dataset)
    assert set(drawn) == set(range(10)) and len(drawn) == 400
    assert subject.ids(dataset) != drawn  # the next window goes on


def test_another_seed_is_another_order(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    drawn = {tuple(subject.ids(with_length(subject.open_dataset(path, shuffle=True, seed=seed), 60))) for seed in range(20)}
    assert len(drawn) == 20


def test_one_row_can_be_drawn_for_ever(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(1)), shuffle=True)
    assert subject.ids(with_length(dataset, 500)) == [0] * 500


def test_a_shallow_copy_shares_the_stream(dataset: Any) -> None:
    with_length(dataset, 2)
    twin = copy.copy(dataset)
    assert (subject.ids(dataset), subject.ids(twin)) == ([0, 1], [2, 3])


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_read_error_comes_at_its_row_and_ends_the_iterator(base: Path, io: str) -> None:
    path = subject.write(base, "a", mini(40))
    dataset = subject.open_dataset(path, io=io)
    shard = path / "shards" / "000000.bin"
    data = shard.read_bytes()
    at = data.index((25).to_bytes(4, "little") * 5)  # the payload of row 25
    with open(shard, "r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    iterator, seen = iter(dataset), []
    with pytest.raises(drt.CorruptCacheError):
        for sample in iterator:
            seen.append(sample.sample_id)
    assert seen == list(range(25))
    assert list(iterator) == []
    with open(shard, "r+b") as file:
        file.seek(at)
        file.write(data[at : at + 1])
    assert subject.ids(dataset) == list(range(40))
