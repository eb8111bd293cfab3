"""Statistics of weighted draws. Seeds are fixed, so a test either always passes or always fails."""

from __future__ import annotations

import collections
import itertools
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import drt as subject
from support.sources import mini, ten_rows

pytestmark = pytest.mark.quick


def draws(dataset: Any, count: int) -> collections.Counter[int]:
    dataset.set_epoch_len(count)
    return collections.Counter(sample.sample_id for sample in dataset)


def assert_frequencies(counts: collections.Counter[int], weights: list[float], sigmas: float = 5.0) -> None:
    """Every row's count lies within some standard deviations of what its weight asks for."""
    total, drawn = math.fsum(weights), sum(counts.values())
    for row, weight in enumerate(weights):
        share = weight / total
        tolerance = sigmas * math.sqrt(drawn * share * (1 - share)) + 1
        assert abs(counts[row] - drawn * share) <= tolerance, (row, counts[row], drawn * share)


WEIGHTS: dict[str, list[float]] = {
    "even": [1.0] * 10,
    "rising": [float(i + 1) for i in range(10)],
    "one heavy row": [1.0] * 9 + [91.0],
    "one light row": [1.0] * 9 + [1e-9],
    "many scales": [10.0 ** (i - 5) for i in range(10)],
    "tiny": [1e-300 * (i + 1) for i in range(10)],
    "large": [1e300 * (i + 1) for i in range(10)],
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", WEIGHTS)
def test_rows_are_drawn_as_often_as_their_weights_say(base: Path, case: str, seed: int) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows()), shuffle=True, seed=seed)
    dataset.update_metadata(dataset.get_metadata().with_columns(pl.Series("weight", WEIGHTS[case])))
    assert_frequencies(draws(dataset, 20_000), WEIGHTS[case])


@pytest.mark.ours
def test_weights_below_the_normal_range_are_weights(base: Path) -> None:
    weights = [5e-324 * (i + 1) for i in range(10)]
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows()), shuffle=True, seed=1)
    dataset.update_metadata(dataset.get_metadata().with_columns(pl.Series("weight", weights)))
    assert_frequencies(draws(dataset, 20_000), [float(i + 1) for i in range(10)])


def test_an_untouched_table_is_drawn_evenly(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", mini(100)), shuffle=True, seed=5)
    assert_frequencies(draws(dataset, 30_000), [1.0] * 100)


def test_consecutive_draws_are_independent(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(4)), shuffle=True, seed=6)
    dataset.set_epoch_len(20_001)
    drawn = subject.ids(dataset)
    pairs = collections.Counter(a * 4 + b for a, b in itertools.pairwise(drawn))
    assert_frequencies(pairs, [1.0] * 16)


def test_windows_draw_on_instead_of_repeating(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows()), shuffle=True, seed=8)
    total: collections.Counter[int] = collections.Counter()
    windows = set()
    for _ in range(200):
        dataset.set_epoch_len(50)
        window = subject.ids(dataset)
        windows.add(tuple(window))
        total.update(window)
    assert len(windows) == 200
    assert_frequencies(total, [1.0] * 10)


def test_repeated_rows_count_as_often_as_they_stand(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(2)), shuffle=True, seed=9)
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table[:1]] * 9 + [table[1:]]))
    assert_frequencies(draws(dataset, 20_000), [9.0, 1.0])


def test_weights_are_not_looked_at_in_order(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows()))
    dataset.update_metadata(dataset.get_metadata().with_columns(pl.Series("weight", WEIGHTS["many scales"])))
    assert subject.ids(dataset) == list(range(10))


def test_a_large_table_keeps_its_proportions(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(2)), shuffle=True, seed=3)
    table, half = dataset.get_metadata(), 1 << 17
    light, heavy = table[:1], table[1:]
    many = pl.concat([light.with_columns(weight=2.0)[[0] * half], heavy.with_columns(weight=1.0)[[0] * half]], rechunk=True)
    dataset.update_metadata(many)
    assert len(dataset) == 2 * half
    assert_frequencies(draws(dataset, 30_000), [2.0, 1.0])
