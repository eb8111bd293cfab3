"""Which rows samplers choose, for any number of ranks. No torch."""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drt_plan
import numpy as np
import polars as pl
import pytest
from dataset_rt import InvalidInputError, api
from dataset_rt.samplers import (
    ClassBalancedSampler,
    LengthBucketBatchSampler,
    PermutationSampler,
    Sampler,
    WeightedSampler,
)
from support import drt
from support.child import run_script
from support.sources import mini

pytestmark = [pytest.mark.ours]

LENGTHS = [1 + row * 7 % 40 for row in range(103)]
LABELS = [row % 10 == 0 for row in range(103)]
WEIGHTS = [1.0 + row % 4 for row in range(103)]

MAKERS: dict[str, Callable[..., Sampler[Any]]] = {
    "permutation": lambda **options: PermutationSampler(rows=103, **options),
    "weighted": lambda **options: WeightedSampler(weights=WEIGHTS, **options),
    "without replacement": lambda **options: WeightedSampler(weights=WEIGHTS, replacement=False, num_samples=77, **options),
    "balanced": lambda **options: ClassBalancedSampler(labels=LABELS, **options),
    "buckets": lambda **options: LengthBucketBatchSampler(lengths=LENGTHS, batch_size=4, pool_size=3, **options),
    "token buckets": lambda **options: LengthBucketBatchSampler(lengths=LENGTHS, max_tokens_per_batch=90, **options),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Sampler[Any]]:
    return MAKERS[request.param]


def epochs(sampler: Sampler[Any], count: int) -> list[list[Any]]:
    return [list(sampler) for _ in range(count)]


def interleave(parts: list[list[Any]]) -> list[Any]:
    return [element for turn in zip(*parts, strict=True) for element in turn]


def test_epochs_differ_and_are_the_same_every_time(make: Callable[..., Sampler[Any]]) -> None:
    first = epochs(make(seed=3), 3)
    assert first[0] != first[1] != first[2] != first[0]
    assert epochs(make(seed=3), 3) == first
    assert epochs(make(seed=4), 3) != first


def test_ranks_share_out_one_global_order(make: Callable[..., Sampler[Any]]) -> None:
    alone = epochs(make(seed=3), 2)
    for ranks in (2, 3, 7):
        parts = [epochs(make(seed=3, rank=rank, world_size=ranks), 2) for rank in range(ranks)]
        for epoch, whole in enumerate(alone):
            joined = interleave([part[epoch] for part in parts])
            assert len(joined) == math.ceil(len(whole) / ranks) * ranks
            assert joined == list(itertools.islice(itertools.cycle(whole), len(joined)))  # padded from the start


def test_ranks_are_made_equal_by_leaving_out(make: Callable[..., Sampler[Any]]) -> None:
    whole = list(make(seed=3, drop_last=True))
    for ranks in (2, 5):
        joined = interleave([list(make(seed=3, drop_last=True, rank=rank, world_size=ranks)) for rank in range(ranks)])
        assert joined == whole[: len(whole) // ranks * ranks]


def test_more_ranks_than_elements_get_one_each() -> None:
    parts = [list(PermutationSampler(rows=3, rank=rank, world_size=8)) for rank in range(8)]
    whole = list(PermutationSampler(rows=3))
    assert parts == [[row] for row in (whole * 3)[:8]]
    with pytest.raises(InvalidInputError, match="nothing is left"):
        PermutationSampler(rows=3, rank=0, world_size=8, drop_last=True)


def test_the_length_is_what_a_pass_yields(make: Callable[..., Sampler[Any]]) -> None:
    for options in ({}, {"rank": 1, "world_size": 3}, {"rank": 1, "world_size": 3, "drop_last": True}):
        sampler = make(**options)
        for _ in range(4):
            expected = len(sampler)
            assert len(list(sampler)) == expected


def test_an_epoch_can_be_chosen(make: Callable[..., Sampler[Any]]) -> None:
    straight = epochs(make(), 4)
    sampler = make()
    for epoch in (2, 0, 3):
        sampler.set_epoch(epoch)
        assert list(sampler) == straight[epoch]
    sampler.set_epoch(1)
    next(iter(sampler))  # given up: the epoch begins again
    assert list(sampler) == straight[1]
    assert list(sampler) == straight[2]
    sampler.set_epoch(sampler._last_epoch)
    assert len(list(sampler)) == len(list(sampler)) > 0
    for beyond in (-1, 2**64, 2**70):
        with pytest.raises(InvalidInputError, match="epoch must be 0 to"):
            sampler.set_epoch(beyond)


def test_a_permutation_gives_each_row_once() -> None:
    sampler = PermutationSampler(rows=5000, seed=7)
    for epoch in range(2):
        order = list(sampler)
        assert sorted(order) == list(range(5000))
        assert order[:5] == [drt_plan.permutation(5000, 7, 5000 * epoch + index) for index in range(5)]


def test_draws_by_weight_are_those_of_the_plan() -> None:
    table = drt_plan.alias_table(WEIGHTS)
    expected = [drt_plan.multinomial(103, table, 5, position) for position in range(60)]
    for weights in (WEIGHTS, np.array(WEIGHTS), np.array(WEIGHTS, dtype=np.float32), array("d", WEIGHTS), pl.Series(WEIGHTS)):
        sampler = WeightedSampler(weights=weights, seed=5, num_samples=30)
        assert list(sampler) + list(sampler) == expected


def test_rows_without_replacement_come_once_and_heavier_ones_earlier() -> None:
    weights = [1000.0 if row % 10 == 0 else 1.0 for row in range(500)]
    sampler = WeightedSampler(weights=weights, replacement=False, seed=1)
    order = list(sampler)
    assert sorted(order) == list(range(500))
    assert sum(row % 10 == 0 for row in order[:50]) > 40
    assert order == drt_plan.weighted_order(weights, 1, 0)
    assert list(sampler) == drt_plan.weighted_order(weights, 1, 1)
    with pytest.raises(InvalidInputError, match="501 of 500"):
        WeightedSampler(weights=weights, replacement=False, num_samples=501)


def test_more_than_2_pow_24_rows_are_drawn_from_exactly() -> None:
    rows = 2**24 + 10
    weights = array("d", [1e-12]) * rows
    weights[-3:] = array("d", [1.0] * 3)
    drawn = Counter(WeightedSampler(weights=weights, num_samples=10_000, seed=1))
    last = [drawn[rows - 3 + i] for i in range(3)]
    assert sum(last) >= 9_990
    sigma = math.sqrt(sum(last) * 2 / 9)
    assert all(abs(count - sum(last) / 3) < 5 * sigma for count in last)


def test_large_tables_are_drawn_from_accurately() -> None:
    half = 2**21
    weights = array("d", [2.0]) * half + array("d", [1.0]) * half
    upper = sum(row >= half for row in WeightedSampler(weights=weights, num_samples=100_000, seed=2))
    assert abs(upper - 100_000 / 3) < 5 * math.sqrt(100_000 * 2 / 9)


def test_classes_get_their_shares_and_rows_their_turn() -> None:
    labels = ["cat"] * 90 + ["dog"] * 9 + ["owl"]
    sampler = ClassBalancedSampler(labels=labels, num_samples=300, seed=1)
    rows = list(sampler) + list(sampler)
    seen = Counter(labels[row] for row in rows)
    assert all(abs(count - 200) <= 2 for count in seen.values())
    for label in ("cat", "dog"):
        of_class = [count for row, count in Counter(rows).items() if labels[row] == label]
        assert max(of_class) - min(of_class) <= 1
        assert len(of_class) == labels.count(label)
    shares = {"owl": 1, "cat": 7, "dog": 2}
    for stop in (10, 50, 300):
        seen = Counter(
            labels[row] for row in itertools.islice(ClassBalancedSampler(labels=labels, shares=shares, num_samples=300), stop)
        )
        assert all(abs(seen[label] - stop * share / 10) < 2 for label, share in shares.items())


def test_labels_may_be_of_any_kind_of_sequence() -> None:
    expected = list(ClassBalancedSampler(labels=LABELS))
    for labels in (np.array(LABELS), pl.Series(LABELS), tuple(LABELS), ["yes" if label else "no" for label in LABELS]):
        assert list(ClassBalancedSampler(labels=labels)) == expected


def test_labels_that_are_no_number_are_one_class() -> None:
    expected = list(ClassBalancedSampler(labels=["none" if row % 3 else row % 2 for row in range(60)]))
    labels = [float("nan") if row % 3 else float(row % 2) for row in range(60)]
    for given in (labels, np.array(labels), pl.Series(labels), np.array(labels, dtype=np.float32)):
        assert list(ClassBalancedSampler(labels=given)) == expected
    shares = {float("nan"): 2, 0.0: 1, 1.0: 1}
    seen = Counter(str(labels[row]) for row in ClassBalancedSampler(labels=labels, shares=shares, num_samples=400))
    assert all(abs(seen[label] - count) <= 2 for label, count in {"nan": 200, "0.0": 100, "1.0": 100}.items())


def test_batches_hold_rows_that_are_alike_and_each_row_once() -> None:
    sampler = LengthBucketBatchSampler(lengths=LENGTHS, batch_size=8, pool_size=100, seed=1)
    for _ in range(2):
        batches = list(sampler)
        assert sorted(row for batch in batches for row in batch) == list(range(103))
        assert sorted(map(len, batches)) == [7] + [8] * 12
        spread = [max(lengths) - min(lengths) for lengths in ([LENGTHS[row] for row in batch] for batch in batches)]
        assert max(spread) <= 4  # 40 lengths, 103 rows
    whole = list(LengthBucketBatchSampler(lengths=LENGTHS, batch_size=8, drop_last=True))
    assert [len(batch) for batch in whole] == [8] * 12


def test_batches_keep_to_the_number_of_tokens() -> None:
    sampler = LengthBucketBatchSampler(lengths=LENGTHS, max_tokens_per_batch=90, pool_size=10, seed=1)
    for _ in range(3):
        batches = list(sampler)
        assert sorted(row for batch in batches for row in batch) == list(range(103))
        padded = [len(batch) * max(LENGTHS[row] for row in batch) for batch in batches]
        assert max(padded) <= 90
        assert sum(padded) < 1.15 * sum(LENGTHS)


def test_batches_of_one_row_are_permuted_twice_by_different_orders() -> None:
    rows = [row for (row,) in LengthBucketBatchSampler(lengths=[1] * 50, batch_size=1, pool_size=1)]
    assert sorted(rows) == list(range(50))
    assert rows != list(PermutationSampler(rows=50))


def test_datasets_have_weights_labels_and_lengths(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "mini", mini(30)))
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=pl.col("i") + 1.0, size=pl.col("i") % 6).reverse().head(20))
    snapshot = dataset.to_torch_map_dataset()
    weights = [float(30 - row) for row in range(20)]
    labels = [(29 - row) % 3 for row in range(20)]
    lengths = [(29 - row) % 6 for row in range(20)]
    expected = [
        list(PermutationSampler(rows=20)),
        list(WeightedSampler(weights=weights)),
        list(WeightedSampler(weights=weights, replacement=False)),
        list(ClassBalancedSampler(labels=labels)),
        list(LengthBucketBatchSampler(lengths=lengths, batch_size=3)),
    ]
    for source in (dataset, snapshot):
        assert [
            list(PermutationSampler(rows=source)),
            list(WeightedSampler(weights=source)),
            list(WeightedSampler(weights=source, replacement=False)),
            list(ClassBalancedSampler(labels=source, column="cls")),
            list(LengthBucketBatchSampler(lengths=source, column="size", batch_size=3)),
        ] == expected
    dataset.update_metadata(table)  # the snapshot stays
    assert list(WeightedSampler(weights=snapshot)) == expected[1]
    assert list(ClassBalancedSampler(labels=snapshot, column="cls")) == expected[3]


@pytest.mark.parametrize(
    ("make_one", "message"),
    [
        (lambda: PermutationSampler(rows=0), "at least one row"),
        (lambda: PermutationSampler(rows=-1), "rows must be"),
        (lambda: PermutationSampler(rows=2**32), "4294967295"),
        (lambda: PermutationSampler(rows=5, rank=0), "go together"),
        (lambda: PermutationSampler(rows=5, rank=2, world_size=2), "rank must be"),
        (lambda: WeightedSampler(weights=[1.0, 0.0]), "row 1 is 0"),
        (lambda: WeightedSampler(weights=[]), "no rows"),
        (lambda: WeightedSampler(weights=[1.0], num_samples=0), "num_samples must be"),
        (lambda: WeightedSampler(weights=np.ones((2, 2))), "one dimension"),
        (lambda: ClassBalancedSampler(labels=[]), "no rows"),
        (lambda: ClassBalancedSampler(labels=["a", "b"], shares={"a": 1}), "no share for 'b'"),
        (lambda: ClassBalancedSampler(labels=["a"], shares={"a": 1, "c": 1}), "no row has this label"),
        (lambda: ClassBalancedSampler(labels=["a"], shares={"a": 0}), "share"),
        (lambda: ClassBalancedSampler(labels=["a"], column="x"), "only datasets"),
        (lambda: LengthBucketBatchSampler(lengths=[], batch_size=1), "no rows"),
        (lambda: LengthBucketBatchSampler(lengths=[1]), "either"),
        (lambda: LengthBucketBatchSampler(lengths=[1], batch_size=1, max_tokens_per_batch=1), "either"),
        (lambda: LengthBucketBatchSampler(lengths=[1, 9], max_tokens_per_batch=8), "row 1 has length 9"),
        (lambda: LengthBucketBatchSampler(lengths=[1, -1], batch_size=8), "row 1 has length -1"),
        (lambda: LengthBucketBatchSampler(lengths=[1], batch_size=8, pool_size=0), "pool_size"),
        (lambda: LengthBucketBatchSampler(lengths=[1], batch_size=8, drop_last=True), "nothing is left"),
    ],
)
def test_what_cannot_be_is_refused(make_one: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_one()


@pytest.mark.parametrize("rows", [True, False, 1.0, None])
def test_rows_are_counted_by_an_integer(rows: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        PermutationSampler(rows=rows)


def test_a_column_must_be_named_and_there(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "mini", mini(5)))
    with pytest.raises(InvalidInputError, match="name the column"):
        ClassBalancedSampler(labels=dataset)
    with pytest.raises(InvalidInputError, match="no column 'kind'"):
        ClassBalancedSampler(labels=dataset, column="kind")


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits(make: Callable[..., Sampler[Any]], seed: int) -> None:
    with pytest.raises(OverflowError, match="seed must be"):
        make(seed=seed)
    assert list(make(seed=2**64 - 1))


def test_samplers_are_public_names() -> None:
    for kind in (ClassBalancedSampler, LengthBucketBatchSampler, PermutationSampler, Sampler, WeightedSampler):
        assert getattr(api, kind.__name__) is kind


def test_neither_torch_nor_numpy_is_needed() -> None:
    script = """
sys.modules["numpy"] = sys.modules["torch"] = None
from dataset_rt.samplers import *
report([list(PermutationSampler(rows=3)), len(WeightedSampler(weights=[1, 2])), len(ClassBalancedSampler(labels="ab"))])
"""
    assert run_script(script) == [list(PermutationSampler(rows=3)), 2, 2]
