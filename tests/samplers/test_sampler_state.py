"""Saving where a sampler is, and going on from there."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dataset_rt.exceptions import InvalidInputError, StateMismatchError
from dataset_rt.samplers import ClassBalancedSampler, LengthBucketBatchSampler, PermutationSampler, Sampler, WeightedSampler
from support import drt
from support.sources import mini
from test_samplers import MAKERS, interleave

pytestmark = [pytest.mark.ours]


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Sampler[Any]]:
    return MAKERS[request.param]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(state)
    assert len(text) < 4096
    return json.loads(text)


@pytest.mark.parametrize("stop", [0, 1, 10, 25])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_pass_goes_on_exactly_behind_the_state(make: Callable[..., Sampler[Any]], epoch: int, stop: int) -> None:
    straight = make(seed=1)
    straight.set_epoch(epoch)
    whole = [list(straight), list(straight)]
    sampler = make(seed=1)
    sampler.set_epoch(epoch)
    begun = list(itertools.islice(iter(sampler), stop))
    resumed = make(seed=1)
    resumed.load_state_dict(through_json(sampler.state_dict()))
    assert resumed.state_dict() == sampler.state_dict()
    assert begun + list(resumed) == whole[0]
    assert list(resumed) == whole[1]


def pickled(sampler: Any) -> Any:
    return pickle.loads(pickle.dumps(sampler))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("stop", [0, 10])
def test_a_copy_goes_on_by_itself(make: Callable[..., Sampler[Any]], copied: Callable[[Any], Any], stop: int) -> None:
    sampler = make(seed=1, rank=1, world_size=2)
    passing = iter(sampler)
    assert len(list(itertools.islice(passing, stop))) == stop
    other = copied(sampler)
    assert type(other) is type(sampler)
    assert other.state_dict() == sampler.state_dict()
    expected = [list(passing), list(sampler)]
    assert all(expected)
    assert [list(other), list(other)] == expected
    assert other.state_dict() == sampler.state_dict()


def test_a_copy_of_a_datasets_sampler_knows_its_rows_and_weights(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "a", mini(50)))
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 + pl.col("i") % 5))
    samplers = [
        PermutationSampler(rows=dataset, seed=1),
        WeightedSampler(weights=dataset, seed=1),
        WeightedSampler(weights=dataset, seed=1, replacement=False),
        ClassBalancedSampler(labels=dataset, column="cls", seed=1),
        LengthBucketBatchSampler(lengths=dataset, column="i", batch_size=4, seed=1),
    ]
    texts = [pickle.dumps(sampler) for sampler in samplers]
    states = [sampler.state_dict() for sampler in samplers]
    expected = [list(sampler) for sampler in samplers]
    dataset.update_metadata(table[:40])
    dataset.close()
    for text, state, whole in zip(texts, states, expected, strict=True):
        assert len(text) < 4096
        other = pickle.loads(text)
        assert other.state_dict() == state == pickled(other).state_dict()
        other.load_state_dict(state)
        assert list(other) == whole


def test_many_stops_make_one_straight_run() -> None:
    whole = list(PermutationSampler(rows=103, seed=1))
    seen, state = [], PermutationSampler(rows=103, seed=1).state_dict()
    for stop in (10, 25, 26, 90, 103):
        sampler = PermutationSampler(rows=103, seed=1)
        sampler.load_state_dict(state)
        seen += itertools.islice(iter(sampler), stop - len(seen))
        state = through_json(sampler.state_dict())
    assert seen == whole


def test_places_that_are_not_there_are_refused(make: Callable[..., Sampler[Any]]) -> None:
    sampler = make(seed=1)
    whole = list(sampler)
    sampler.set_epoch(0)
    state = sampler.state_dict()
    for change in ({"epoch": 2**64 - 1}, {"epoch": 2**64}, {"position": 10**12}, {"position": -1}, {"epoch": None}):
        with pytest.raises(InvalidInputError, match="no state of a sampler") as raised:
            sampler.load_state_dict({**state, **change})
        assert raised.value.kind == "invalid-state"
    assert list(sampler) == whole


def test_going_on_by_position_behind_a_shorter_epoch_begins_the_next() -> None:
    longer = PermutationSampler(rows=10**6, seed=1)
    state = {**longer.state_dict(), "position": 9 * 10**5}
    sampler, expected = PermutationSampler(rows=50, seed=1), PermutationSampler(rows=50, seed=1)
    sampler.load_state_dict(state, strict=False)
    expected.set_epoch(1)
    assert list(sampler) == list(expected)


def test_a_state_between_epochs_is_the_beginning_of_the_next() -> None:
    sampler = PermutationSampler(rows=20, seed=1)
    list(sampler)
    state = sampler.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    resumed = PermutationSampler(rows=20, seed=1)
    resumed.load_state_dict(state)
    assert list(resumed) == list(sampler)


def test_a_state_at_the_end_of_an_epoch_has_nothing_left_of_it() -> None:
    sampler = PermutationSampler(rows=20, seed=1)
    for _ in itertools.islice(iter(sampler), 20):
        pass
    state = sampler.state_dict()
    assert (state["epoch"], state["position"]) == (0, 20)
    resumed = PermutationSampler(rows=20, seed=1)
    resumed.load_state_dict(state)
    expected = PermutationSampler(rows=20, seed=1)
    expected.set_epoch(1)
    assert list(resumed) == []
    assert list(resumed) == list(expected)


def test_an_iterator_that_is_never_used_takes_no_place_away() -> None:
    sampler = PermutationSampler(rows=20, seed=1)
    source = iter(sampler)
    begun = [next(source) for _ in range(5)]
    resumed = PermutationSampler(rows=20, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    iter(resumed)
    assert begun + list(resumed) == list(PermutationSampler(rows=20, seed=1))


def test_naming_the_epoch_that_was_loaded_keeps_the_place() -> None:
    sampler = PermutationSampler(rows=20, seed=1)
    source = iter(sampler)
    begun = [next(source) for _ in range(5)]
    resumed = PermutationSampler(rows=20, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(0)
    assert begun + list(resumed) == list(PermutationSampler(rows=20, seed=1))


def test_other_ranks_go_on_in_the_same_order(make: Callable[..., Sampler[Any]]) -> None:
    whole = list(make(seed=1))
    two = [make(seed=1, rank=rank, world_size=2) for rank in range(2)]
    begun = interleave([list(itertools.islice(iter(sampler), 6)) for sampler in two])
    states = [through_json(sampler.state_dict()) for sampler in two]
    assert states[0] == states[1]
    three = [make(seed=1, rank=rank, world_size=3) for rank in range(3)]
    for sampler in three:
        sampler.load_state_dict(states[0])
    joined = begun + interleave([list(sampler) for sampler in three])
    assert joined[: len(whole)] == whole
    assert len(joined) - len(whole) < 3


@pytest.mark.parametrize(
    ("saved", "own", "message"),
    [
        (PermutationSampler(rows=9), PermutationSampler(rows=8), "rows is 8 here and was 9"),
        (PermutationSampler(rows=9, seed=1), PermutationSampler(rows=9, seed=2), "seed is 2 here and was 1"),
        (
            PermutationSampler(rows=2),
            WeightedSampler(weights=[1, 1]),
            "kind is 'WeightedSampler' here and was",
        ),
        (WeightedSampler(weights=[1, 2]), WeightedSampler(weights=[1, 1]), "the weights differ"),
        (WeightedSampler(weights=[1, 2]), WeightedSampler(weights=[1, 2], num_samples=5), "num_samples is 5 here and was 2"),
        (WeightedSampler(weights=[1, 2]), WeightedSampler(weights=[1, 2], replacement=False), "replacement is False here"),
        (ClassBalancedSampler(labels="aab"), ClassBalancedSampler(labels="abb"), "the labels differ"),
        (ClassBalancedSampler(labels="ab"), ClassBalancedSampler(labels="ab", shares={"a": 1, "b": 2}), "the shares differ"),
        (
            LengthBucketBatchSampler(lengths=[1, 2], batch_size=1),
            LengthBucketBatchSampler(lengths=[1, 3], batch_size=2),
            "batch_size is 2 here and was 1, the lengths differ",
        ),
    ],
)
def test_a_state_of_another_order_is_refused_unless_wanted(saved: Sampler[Any], own: Sampler[Any], message: str) -> None:
    before = own.state_dict()
    state = {**saved.state_dict(), "epoch": 3, "position": 1}
    with pytest.raises(StateMismatchError, match=message) as caught:
        own.load_state_dict(state)
    assert caught.value.kind == "state-mismatch"
    assert own.state_dict() == before
    own.load_state_dict(state, strict=False)
    assert own.state_dict() == {**before, "epoch": 3, "position": 1}


def test_rows_of_another_table_are_another_order(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "mini", mini(20)))
    state = PermutationSampler(rows=dataset).state_dict()
    PermutationSampler(rows=dataset).load_state_dict(state)
    PermutationSampler(rows=20).load_state_dict(state)  # which rows these are is not known
    dataset.update_metadata(dataset.get_metadata().reverse())
    with pytest.raises(StateMismatchError, match="the rows of the dataset differ"):
        PermutationSampler(rows=dataset).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"epoch": -1},
        {"epoch": True},
        {"position": 1.5},
        {"position": None},
        {"position": 2**64},
        {"order": []},
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    sampler = PermutationSampler(rows=9)
    with pytest.raises(InvalidInputError, match="no state of a sampler"):
        sampler.load_state_dict({**sampler.state_dict(), **change})
    with pytest.raises(StateMismatchError, match="version 2"):
        sampler.load_state_dict({**sampler.state_dict(), "version": 2})
