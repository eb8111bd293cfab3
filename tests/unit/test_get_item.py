"""Random access: one sample by its identity, or many in one call."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import values
from support.sources import mini, tame_rows, ten_rows

pytestmark = pytest.mark.quick


@pytest.fixture(params=subject.IO_MODES)
def dataset(base: Path, request: pytest.FixtureRequest) -> Any:
    """Two caches, one of them compressed, in small shards."""
    paths = [
        subject.write(base, "a", tame_rows(30), max_shard_bytes=900),
        subject.write(base, "b", tame_rows(20, seed=1), algo="lz4", max_shard_bytes=900),
    ]
    return subject.open_dataset(paths, io=request.param)


def test_item_is_the_sample_that_iteration_gives(dataset: Any) -> None:
    for sample in dataset:
        again = dataset.get_item(sample.cache_id, sample.sample_id)
        assert type(again) is drt.CachedSample
        assert values.plain_sample(again) == values.plain_sample(sample)


def test_item_moves_no_cursor_and_ignores_the_table(dataset: Any) -> None:
    table = dataset.get_metadata()
    last = table.row(-1, named=True)
    dataset.update_metadata(table.head(4))
    dataset.set_epoch_len(2)
    iterator = iter(dataset)
    assert next(iterator).sample_id == 0
    assert dataset.get_item(last["cache_id"], last["sample_id"]).metadata["label"] == last["label"]
    assert next(iterator).sample_id == 1
    assert subject.ids(dataset) == [2, 3]


def test_unknown_rows_are_index_errors(dataset: Any) -> None:
    cache_id = next(iter(dataset)).cache_id
    for pair in [(cache_id, 30), (cache_id, -1), (cache_id, 2**63), (cache_id, 2**64), (0, 0), (-1, 0), (2**70, 0),
                 (cache_id, -(2**70))]:  # fmt: skip
        with pytest.raises(IndexError) as caught:
            dataset.get_item(*pair)
        assert isinstance(caught.value, subject.SampleIndex)


@pytest.mark.ours
def test_index_error_names_both_numbers(dataset: Any) -> None:
    cache_id = next(iter(dataset)).cache_id
    with pytest.raises(IndexError) as caught:
        dataset.get_item(cache_id, 4711)
    assert str(cache_id) in str(caught.value) and "4711" in str(caught.value)


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, b"1"])
def test_only_integers_are_identities(dataset: Any, wrong: Any) -> None:
    cache_id = next(iter(dataset)).cache_id
    with pytest.raises(TypeError):
        dataset.get_item(cache_id, wrong)
    with pytest.raises(TypeError):
        dataset.get_item(wrong, 0)


@pytest.mark.ours
def test_numpy_integers_are_identities(dataset: Any) -> None:
    numpy = pytest.importorskip("numpy")
    sample = next(iter(dataset))
    for kind in (numpy.int64, numpy.uint64):
        again = dataset.get_item(kind(sample.cache_id), kind(sample.sample_id))
        assert values.plain_sample(again) == values.plain_sample(sample)
    assert dataset.get_item(sample.cache_id, numpy.int8(3)).sample_id == 3
    for wrong in (numpy.float64(1.0), numpy.bool_(True)):
        with pytest.raises(TypeError):
            dataset.get_item(sample.cache_id, wrong)


def test_arguments_may_be_given_by_name(dataset: Any) -> None:
    sample = next(iter(dataset))
    assert dataset.get_item(cache_id=sample.cache_id, sample_id=2).sample_id == 2


@pytest.mark.ours
def test_many_items_come_in_the_order_asked_for(dataset: Any) -> None:
    everything = {(sample.cache_id, sample.sample_id): values.plain_sample(sample) for sample in dataset}
    asked = random.Random(4).choices(list(everything), k=300)  # with repeats, across both caches
    seen = dataset.get_many(asked)
    assert type(seen) is list and all(type(sample) is drt.CachedSample for sample in seen)
    assert [values.plain_sample(sample) for sample in seen] == [everything[pair] for pair in asked]


@pytest.mark.ours
def test_many_items_may_be_none_at_all(dataset: Any) -> None:
    assert dataset.get_many([]) == []


@pytest.mark.ours
def test_many_items_moves_no_cursor(dataset: Any) -> None:
    dataset.set_epoch_len(2)
    first = subject.pairs(dataset)
    dataset.get_many(first * 10)
    assert subject.ids(dataset) == [2, 3]


@pytest.mark.ours
def test_many_items_with_one_unknown_is_an_index_error(dataset: Any) -> None:
    pairs = subject.pairs(dataset)
    for wrong in [(pairs[0][0], 30), (0, 0), (pairs[0][0], -1)]:
        with pytest.raises(drt.SampleIndexError):
            dataset.get_many([*pairs, wrong])


@pytest.mark.ours
@pytest.mark.parametrize("wrong", [[(1,)], [(1, 2, 3)], [1], [("a", "b")], [(True, False)], [(1.0, 2.0)], 5, None])
def test_many_items_takes_pairs_of_integers(dataset: Any, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dataset.get_many(wrong)


@pytest.mark.ours
@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_ten_thousand_items_in_one_call(base: Path, algo: str, io: str) -> None:
    rows = mini(2500)
    path = subject.write(base, "a", rows, algo=algo, max_shard_bytes=20_000)
    dataset = subject.open_dataset(path, io=io)
    cache_id = next(iter(dataset)).cache_id
    order = random.Random(1).choices(range(2500), k=10_000)
    seen = dataset.get_many([(cache_id, row) for row in order])
    assert [(sample.sample_id, sample.data, sample.metadata["s"]) for sample in seen] == [
        (row, rows[row][0], f"row-{row}") for row in order
    ]


def test_items_of_a_legacy_cache_are_known_by_position(golden: Path) -> None:
    dataset = subject.open_dataset([golden / "v2" / "bits", golden / "v2" / "bits"])
    assert (dataset.get_item(1, 129).cache_id, dataset.get_item(1, 129).sample_id) == (1, 129)
    with pytest.raises(IndexError):
        dataset.get_item(2, 0)


def test_items_of_two_caches_are_not_confused(base: Path) -> None:
    paths = [subject.write(base, name, [(name.encode(), {"i": 1})] * 3) for name in ("a", "b")]
    dataset = subject.open_dataset(paths)
    by_name = {sample.data: sample.cache_id for sample in dataset}
    for name, cache_id in by_name.items():
        assert dataset.get_item(cache_id, 2).data == name
    assert len(ten_rows()) == 10
