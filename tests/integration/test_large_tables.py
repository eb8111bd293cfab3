"""Tables of millions of rows, whose weights a sum in single precision or a table of 2^24 entries would lose."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.child import run_script

pytestmark = pytest.mark.slow

# The first of four samples stands in the table `light` times, the others `heavy` times each.
SCRIPT = """
from pathlib import Path
import polars
from support import drt
path = drt.write(Path(ARGS["base"]), "a", [(b"%d" % i, {"even": i % 2 == 0}) for i in range(4)])
dataset = drt.open_dataset(path, shuffle=True, seed=ARGS["seed"])
table = dataset.get_metadata()
times = polars.when(polars.col("sample_id") == 0).then(ARGS["light"]).otherwise(ARGS["heavy"])
many = table.select(polars.all().repeat_by(times).explode())
weights = polars.when(polars.col("sample_id") == 0).then(ARGS["light_weight"]).otherwise(1.0)
dataset.update_metadata(many.with_columns(weight=weights))
assert len(dataset) == ARGS["light"] + 3 * ARGS["heavy"]
dataset.set_epoch_len(ARGS["draws"])
counts = [0] * 4
for sample in dataset:
    counts[sample.sample_id] += 1
report(counts)
"""


def assert_near(count: int, draws: int, share: float) -> None:
    assert abs(count - draws * share) <= 5 * math.sqrt(draws * share * (1 - share)), (count, draws * share)


def test_three_heavy_rows_outweigh_sixteen_million_light_ones(base: Path) -> None:
    draws = 10_000
    args = {"base": str(base), "seed": 1, "light": 2**24 + 7, "heavy": 1, "light_weight": 1e-12, "draws": draws}
    light, *heavy = run_script(SCRIPT, args)
    assert light <= 10 and sum(heavy) == draws - light
    for count in heavy:
        assert_near(count, sum(heavy), 1 / 3)


def test_four_million_rows_keep_their_proportions(base: Path) -> None:
    draws, half = 100_000, 2**21
    args = {"base": str(base), "seed": 2, "light": half, "heavy": half // 3, "light_weight": 2.0, "draws": draws}
    twice, *once = run_script(SCRIPT, args)
    assert_near(twice, draws, 2 * half / (2 * half + half // 3 * 3))
    for count in once:
        assert_near(count, draws, (half // 3) / (2 * half + half // 3 * 3))
