"""The plain-Python plan against the vectors that the Rust crate is tested with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import drt_plan
import pytest

VECTORS = json.loads((Path(__file__).resolve().parents[2] / "crates/drt-sampler/tests/vectors.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.quick


def weights_of(case: dict[str, Any]) -> list[float]:
    """One weight per row: the listed ones, over and over."""
    listed = case["weights"]
    return [float(listed[row % len(listed)]) for row in range(case.get("population", len(listed)))]


@pytest.mark.parametrize(
    ("key", "nonce", "counter", "block"),
    [
        (
            "00" * 32,
            "00" * 8,
            0,
            "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
            "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42",
        ),
        (
            "00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100",
            "0f1e2d3c4b5a6978",
            1,
            "c5dd30bf55612fab9bdd118920c19816470c7f5dcd42325dbbed8c57a56281c1"
            "44cb0f03e81b3004624e0650a1ce5afaf9a7cd8163f6dbd72602257dd96e471e",
        ),
    ],
)
def test_generator_gives_the_published_blocks(key: str, nonce: str, counter: int, block: str) -> None:
    """draft-strombergson-chacha-test-vectors-01."""
    nonce_number = int.from_bytes(bytes.fromhex(nonce), "little")
    assert drt_plan.chacha8_block(bytes.fromhex(key), nonce_number, counter).hex() == block


@pytest.mark.parametrize("case", VECTORS["tables"], ids=lambda case: " ".join(case["weights"]))
def test_tables_are_as_published(case: dict[str, Any]) -> None:
    table = drt_plan.alias_table(weights_of(case))
    entries = (threshold.to_bytes(8, "little") + alias.to_bytes(4, "little") for threshold, alias in table)
    assert b"".join(entries).hex() == case["table"]


@pytest.mark.parametrize("case", VECTORS["draws"], ids=lambda case: "-".join(map(str, list(case.values())[:-1])))
def test_draws_are_as_published(case: dict[str, Any]) -> None:
    population, seed = case["population"], case["seed"]
    positions = range(case["position"], case["position"] + len(case["rows"]))
    if case["mode"] == "cyclic":
        rows = [position % population for position in positions]
    elif case["mode"] == "permutation":
        rows = [drt_plan.permutation(population, seed, position) for position in positions]
    else:
        weights = weights_of(case) if "weights" in case else [1.0]
        table = drt_plan.alias_table(weights) if len(set(weights)) > 1 else None
        rows = [drt_plan.multinomial(population, table, seed, position) for position in positions]
    assert rows == case["rows"]


@pytest.mark.parametrize("case", VECTORS["orders"], ids=lambda case: "-".join(map(str, list(case.values())[:-1])))
def test_orders_are_as_published(case: dict[str, Any]) -> None:
    population, start = case["population"], case["epoch"] * case["population"] + case["index"]
    rows = [drt_plan.permutation(population, case["seed"], start + i) for i in range(len(case["rows"]))]
    assert rows == case["rows"]


@pytest.mark.parametrize("case", VECTORS["weighted_orders"], ids=str)
def test_weighted_orders_are_as_published(case: dict[str, Any]) -> None:
    assert drt_plan.weighted_order(weights_of(case), case["seed"], case["epoch"]) == case["rows"]


@pytest.mark.parametrize("case", VECTORS["mixtures"], ids=str)
def test_mixtures_are_as_published(case: dict[str, Any]) -> None:
    shares = [float(share) for share in case["shares"]]
    places = [drt_plan.mixture(shares, case["seed"], case["position"] + i) for i in range(len(case["places"]))]
    assert places == [tuple(place) for place in case["places"]]


@pytest.mark.parametrize("case", VECTORS["balanced"], ids=lambda case: f"{case['shares']}-{case['seed']}")
def test_balanced_plans_are_as_published(case: dict[str, Any]) -> None:
    shares = [float(share) for share in case["shares"]]
    rows = [drt_plan.balanced(case["groups"], shares, case["seed"], case["position"] + i) for i in range(len(case["rows"]))]
    assert rows == case["rows"]


def test_every_row_gets_its_share_of_the_buckets() -> None:
    weights = [1.0, 1e-9, 3.0, 0.1, 7.5, 1.0]
    shares, placed = drt_plan.shares(weights), [0] * len(weights)
    for row, (threshold, alias) in enumerate(drt_plan.alias_table(weights)):
        placed[row] += threshold
        placed[alias] += 2**64 - threshold
    assert placed == shares
    assert sum(shares) == len(weights) * 2**64


@pytest.mark.parametrize("population", [1, 2, 7, 256, 257, 300])
def test_an_epoch_holds_every_row_once(population: int) -> None:
    epoch = [drt_plan.permutation(population, 7, 3 * population + index) for index in range(population)]
    assert sorted(epoch) == list(range(population))
