"""Who reads how many samples of which rows: the arithmetic behind the loader, without torch."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("dataset_rt", reason="needs the package")

from dataset_rt._torch.partition import Place, Share, Topology, quotas, turns
from dataset_rt._torch.seeds import consumer_seed

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def topology(**changed: Any) -> Topology:
    """Ten rows in table order, one rank that loads itself, but for what is said."""
    facts = {
        "rows": 10, "samples": 10, "batch_size": 2, "drop_last": False, "world_size": 1, "rank": 0, "num_workers": 0,
        "partition": "split", "order": "sequential", "seed": 3,
    }  # fmt: skip
    return Topology(**{**facts, **changed})


def rows_of(share: Share) -> list[int]:
    return [row for start, stop in share.rows for row in range(start, stop)]


def passes(share: Share, batch_size: int, count: int) -> list[list[list[int]]]:
    """The batches that one consumer makes in each of `count` passes, in table order."""
    endless = itertools.cycle(rows_of(share))
    made = []
    for _ in range(count):
        drawn = list(itertools.islice(endless, share.quota))
        made.append([drawn[at : at + batch_size] for at in range(0, len(drawn), batch_size)])
    return made


def interleaved(one: Topology, count: int) -> list[str]:
    """What torch hands out of the consumers' batches, round robin, as text: `01 67 23`."""
    each = [passes(share, one.batch_size, count) for share in one.shares()]
    turns = [itertools.zip_longest(*(consumer[number] for consumer in each)) for number in range(count)]
    return [" ".join("".join(map(str, batch)) for turn in rounds for batch in turn if batch) for rounds in turns]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"batch_size": 3}, ["012 345 678 9", "012 345 678 9"]),
        ({"batch_size": 3, "drop_last": True}, ["012 345 678", "901 234 567", "890 123 456"]),
        ({"samples": 4, "batch_size": 4}, ["0123", "4567", "8901", "2345"]),
        ({"num_workers": 2}, ["01 67 23 89 45", "01 67 23 89 45"]),
        ({"num_workers": 2, "partition": "replicate"}, ["01 01 23 23 45", "67 45 89 67 01"]),
        ({"num_workers": 2, "batch_size": 1, "samples": 6}, ["0 5 1 6 2 7", "3 8 4 9 0 5"]),
        ({"num_workers": 2, "samples": 7}, ["01 56 23 7", "40 89 12 5"]),
        ({"num_workers": 3, "batch_size": 1, "samples": 4}, ["0 4 7 1", "2 5 8 3", "0 6 9 1"]),
        ({"num_workers": 2, "batch_size": 3, "drop_last": True}, ["012 678 345", "901 678 234"]),
    ],
)
def test_batches_of_ten_rows_in_table_order(changed: dict[str, Any], expected: list[str]) -> None:
    assert interleaved(topology(**changed), len(expected)) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [["01 23"], ["45 67"], ["89 01"]]),
        ({"drop_last": True}, [["01", "67", "01"], ["23", "82", "38"], ["45", "94", "59"]]),
        ({"samples": 4}, [["01", "23"], ["45", "64"], ["78", "97"]]),
    ],
)
def test_batches_of_three_ranks(changed: dict[str, Any], expected: list[list[str]]) -> None:
    ranks = [topology(world_size=3, rank=rank, **changed) for rank in range(3)]
    assert [interleaved(rank, len(each)) for rank, each in zip(ranks, expected, strict=True)] == expected


GRID = [
    topology(
        rows=rows,
        samples=samples,
        batch_size=batch_size,
        drop_last=drop_last,
        world_size=world_size,
        num_workers=num_workers,
        partition=partition,
        order=order,
    )
    for rows in (1, 2, 3, 7, 10)
    for samples in sorted({1, 2, 5, 9, 23, rows})
    for batch_size in (1, 2, 4)
    for drop_last in (False, True)
    for world_size in (1, 2, 3, 5)
    for num_workers in (0, 1, 2, 5)
    for partition in ("split", "replicate")
    for order in ("sequential", "weighted")
]


def of_all_ranks(one: Topology) -> list[list[Share]]:
    facts = {name: getattr(one, name) for name in one.__dataclass_fields__}
    return [list(Topology(**{**facts, "rank": rank}).shares()) for rank in range(one.world_size)]


def test_every_rank_gets_its_budget_in_whole_batches() -> None:
    for one in GRID:
        lengths = set()
        for shares in of_all_ranks(one):
            assert len(shares) == max(1, one.num_workers)
            assert sum(share.quota for share in shares) == one.budget, one
            short = [share for share in shares if share.quota % one.batch_size]
            working = [share for share in shares if share.quota]
            assert short in ([], working[-1:]), one
            assert not (short and one.drop_last), one
            lengths.add(sum(-(-share.quota // one.batch_size) for share in shares))
        assert lengths == {-(-one.budget // one.batch_size)}, one


def test_whoever_works_has_rows_and_whoever_does_not_has_none() -> None:
    for one in GRID:
        for share in itertools.chain.from_iterable(of_all_ranks(one)):
            assert bool(share.quota) == bool(share.population) == bool(share.rows), one
            assert all(0 <= start < stop <= one.rows for start, stop in share.rows), one


def test_no_row_is_left_out() -> None:
    for one in GRID:
        shares = list(itertools.chain.from_iterable(of_all_ranks(one)))
        covered = set(itertools.chain.from_iterable(map(rows_of, shares)))
        assert covered == (set(range(one.rows)) if one.budget else set()), one


def test_rows_that_are_split_belong_to_one_consumer_except_for_padding() -> None:
    for one in GRID:
        if one.partition == "replicate" or not one.budget:
            continue
        dealt = sum(share.population for share in itertools.chain.from_iterable(of_all_ranks(one)))
        padding = max(0, one.effective_samples - one.rows) if one.samples == one.rows and not one.shuffle else 0
        assert dealt == max(one.rows + padding, min(one.world_size, dealt)), one


def test_a_pass_over_the_table_reads_every_row_once() -> None:
    for one in GRID:
        if one.partition == "split" and not one.shuffle and one.samples == one.rows and one.effective_samples == one.rows:
            drawn = [
                itertools.islice(itertools.cycle(rows_of(s)), s.quota) for each in of_all_ranks(one) for s in each if s.quota
            ]
            assert sorted(itertools.chain.from_iterable(drawn)) == list(range(one.rows)), one


def test_what_is_left_over_is_dealt_evenly() -> None:
    for rows in range(6, 40):
        one = topology(rows=rows, samples=rows, batch_size=3, drop_last=True, world_size=2)
        sizes = [shares[0].population for shares in of_all_ranks(one)]
        assert max(sizes) - min(sizes) <= 1, one


def test_budgets_of_three_ranks() -> None:
    kept = topology(rows=1000, samples=1000, batch_size=32, world_size=3)
    dropped = topology(rows=1000, samples=1000, batch_size=32, world_size=3, drop_last=True)
    assert (kept.budget, kept.effective_samples) == (334, 1002)
    assert (dropped.budget, dropped.effective_samples) == (320, 960)


def test_earlier_processes_get_one_batch_more_and_the_last_one_the_rest() -> None:
    assert quotas(10, 2, 2) == [6, 4]
    assert quotas(11, 2, 3) == [4, 4, 3]
    assert quotas(2, 4, 8) == [2, 0, 0, 0, 0, 0, 0, 0]
    assert quotas(0, 4, 2) == [0, 0]


def test_shuffled_rows_are_divided_as_they_are_drawn() -> None:
    shares = topology(rows=100, samples=30, batch_size=10, num_workers=2, order="weighted").shares()
    assert [(share.quota, share.population, share.permute) for share in shares] == [(20, 67, 3), (10, 33, 3)]


def test_every_consumer_has_a_seed_of_its_own() -> None:
    assert consumer_seed(3, 0, 0) == 3571654488517972352
    seeds = [consumer_seed(seed, rank, worker) for seed in (0, 1, 2**64 - 1) for rank in range(8) for worker in range(8)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_table_order_has_no_seed() -> None:
    assert {share.seed for share in topology(num_workers=3).shares()} == {0}


# one stream, and going on ------------------------------------------------------------------------------------------------------


def in_turn(one: Topology, place: Place) -> list[tuple[int, int, int]]:
    """What torch hands out of what is left of a pass: share, position and length of each batch, in one stream the step alone."""
    each: list[list[tuple[int, int, int]]] = []
    for process in range(one.consumers):
        share, position, samples = one.part(place, process)
        batches = []
        for first in range(0, samples, one.batch_size):
            batches.append((share, position, min(one.batch_size, samples - first)))
            position += one.stride or one.batch_size
        each.append(batches)
    handed_out = [batch for turn in itertools.zip_longest(*each) for batch in turn if batch is not None]
    return [(0, *batch[1:]) for batch in handed_out] if one.partition == "stream" else handed_out


PLACES = [
    topology(rows=rows, samples=samples, batch_size=batch_size, drop_last=drop_last, world_size=2, rank=1,
             num_workers=num_workers, partition=partition, order="weighted")
    for rows, samples in ((2, 9), (10, 10), (30, 37))
    for batch_size in (3, 4)
    for drop_last in (False, True)
    for num_workers in (0, 2, 3, 5)
    for partition in ("split", "replicate", "stream")
]  # fmt: skip


def test_going_on_anywhere_hands_out_what_a_straight_run_does() -> None:
    for one in PLACES:
        place = one.beginning()
        for passes in range(3):
            straight = in_turn(one, place)
            assert len(straight) == one.num_batches
            for stop in range(one.num_batches):
                later = one.after(place, stop)
                assert later[:2] == (passes, stop)
                assert in_turn(one, later) == straight[stop:], (one, stop)
                for again in range(one.num_batches - stop + 1):
                    assert one.after(later, again) == one.after(place, stop + again), (one, stop, again)
            place = one.after(place, one.num_batches)
            assert place[:2] == (passes + 1, 0), one


def test_one_stream_is_the_same_whatever_the_ranks_and_processes_with_one_global_batch() -> None:
    found = []
    for world_size, num_workers, batch_size in ((1, 0, 12), (2, 2, 6), (3, 1, 4), (4, 3, 3), (12, 5, 1)):
        one = topology(rows=50, samples=50, batch_size=batch_size, world_size=world_size, num_workers=num_workers,
                       partition="stream", order="permutation")  # fmt: skip
        ranks = [in_turn(replace(one, rank=rank), one.beginning()) for rank in range(world_size)]
        steps = [
            [place for _, position, size in step for place in range(position, position + size)]
            for step in zip(*ranks, strict=True)
        ]
        assert one.effective_samples == 60
        found.append(steps)
    assert all(steps == [list(range(start, start + 12)) for start in range(0, 60, 12)] for steps in found)


def test_processes_that_do_not_live_on_begin_anew_except_for_what_is_left_of_a_pass() -> None:
    one = topology(num_workers=2, repeats=True)
    within = one.after(one.beginning(), 3)
    assert within == (0, 3, (4, 2))
    assert one.after(within, 2) == one.beginning(1)
    assert one.next_pass(within) == one.beginning(1)
    assert topology(num_workers=2).next_pass(within) == (1, 0, (4, 2))


def test_turns_are_taken_without_those_that_have_no_more() -> None:
    assert turns([2, 1, 2], 4) == ([2, 1, 1], 2)
    assert turns([2, 1, 0], 3) == ([2, 1, 0], 0)
    assert turns([1, 1], 1) == ([1, 0], 1)
    assert turns([0, 0], 0) == ([0, 0], 0)
