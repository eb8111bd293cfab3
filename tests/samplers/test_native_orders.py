"""Mixtures, balanced plans and orders without replacement, as the native module gives them, against the plain-Python ones."""

from __future__ import annotations

from array import array
from pathlib import Path

import drt_plan
import polars as pl
import pytest
from dataset_rt import InvalidInputError
from dataset_rt._native import BalancedPlan, Mixture, WeightedOrder
from support import drt
from support.sources import ten_rows

pytestmark = [pytest.mark.ours]


def test_a_mixture_is_the_published_one() -> None:
    shares = [0.5, 0.2, 3.0, 1.0, 1e-9]
    expected = [drt_plan.mixture(shares, 7, position) for position in range(60)]
    assert Mixture(shares, seed=7).places(0, 60) == expected
    assert Mixture(shares, seed=7).places(50, 10) == expected[50:]


def test_a_balanced_plan_is_the_published_one() -> None:
    groups = array("I", [0, 1, 0, 2, 2, 2, 0, 1])
    expected = [drt_plan.balanced(groups, [1.0, 2.0, 0.5], 3, 2**40 + i) for i in range(50)]
    plan = BalancedPlan(groups, [1.0, 2.0, 0.5], seed=3)
    assert plan.population == 8
    assert plan.rows(2**40, 50) == expected


def test_a_weighted_order_is_the_published_one() -> None:
    weights = array("d", [1.0 + row % 5 for row in range(40)])
    order = WeightedOrder(weights, seed=9)
    for epoch in (0, 1, 1000):
        expected = drt_plan.weighted_order(weights, 9, epoch)
        assert order.rows(epoch, 40) == expected
        assert order.rows(epoch, 7) == expected[:7]


def test_a_table_has_the_order_of_its_weights(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "ten", ten_rows()))
    assert dataset._native.view().weighted_order(5).rows(0, 10) == drt_plan.weighted_order([1.0] * 10, 5, 0)
    weights = [0.5 + row for row in range(10)]
    dataset.update_metadata(dataset.get_metadata().with_columns(pl.Series("weight", weights)))
    view = dataset._native.view()
    assert view.weighted_order(5).rows(2, 10) == drt_plan.weighted_order(weights, 5, 2)
    assert view.weighted_order(5).digest() == WeightedOrder(array("d", weights), seed=5).digest()


def test_what_decides_an_order_decides_its_digest() -> None:
    ones, twos = array("d", [1.0, 1.0]), array("d", [1.0, 2.0])
    made = [WeightedOrder(ones, seed=1), WeightedOrder(twos, seed=1), WeightedOrder(ones, seed=2)]
    groups = array("I", [0, 1])
    plans = [
        BalancedPlan(groups, [1, 1], seed=1),
        BalancedPlan(groups, [1, 2], seed=1),
        BalancedPlan(groups[::-1], [1, 1], seed=1),
    ]
    assert len({one.digest() for one in (*made, *plans)}) == 6
    assert WeightedOrder(ones, seed=1).digest() == made[0].digest()


def test_what_cannot_be_is_refused() -> None:
    for make, message in (
        (lambda: Mixture([1.0, 0.0]), "component 1"),
        (lambda: BalancedPlan(array("I", [0, 2]), [1.0, 1.0]), "row 1 is in group 2"),
        (lambda: BalancedPlan(array("I", [1, 1]), [1.0, 1.0]), "group 0"),
        (lambda: WeightedOrder(array("d", [1.0, float("nan")])), "row 1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            make()
    with pytest.raises(ValueError, match="3 rows of 2"):
        WeightedOrder(array("d", [1.0, 1.0])).rows(0, 3)
    with pytest.raises(OverflowError, match=r"2\*\*64"):
        Mixture([1.0]).places(2**64 - 1, 2)
