"""A dataset draws what the plan in plain Python draws: the rule that a seed's sequence can be computed from, for ever."""

from __future__ import annotations

from pathlib import Path

import drt_plan
import polars as pl
import pytest
from support import drt as subject
from support.sources import ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

COUNT = 300


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
@pytest.mark.parametrize("population", [1, 2, 7, 100])
def test_an_untouched_dataset_draws_what_the_plan_says(base: Path, population: int, seed: int) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(population)), shuffle=True, seed=seed)
    dataset.set_epoch_len(COUNT)
    assert subject.ids(dataset) == [drt_plan.multinomial(population, None, seed, position) for position in range(COUNT)]


@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0], [1e-9, 1.0, 1e9, 0.1, 0.3], [5e-324, 1e308, 1.0]], ids=str)
def test_a_weighted_dataset_draws_what_the_plan_says(base: Path, weights: list[float]) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows(len(weights))), shuffle=True, seed=5)
    dataset.update_metadata(dataset.get_metadata().with_columns(pl.Series("weight", weights)).reverse())
    table = drt_plan.alias_table(weights[::-1])
    rows = [drt_plan.multinomial(len(weights), table, 5, position) for position in range(2 * COUNT)]
    dataset.set_epoch_len(COUNT)
    drawn = [subject.ids(dataset) for _ in range(2)]
    assert drawn[0] + drawn[1] == [len(weights) - 1 - row for row in rows]
