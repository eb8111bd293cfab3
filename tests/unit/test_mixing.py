"""One stream over several datasets: exact shares, joined windows, and going on exactly where it was."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import itertools
import json
import pickle
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dataset_rt as drt
import drt_plan
import polars as pl
import pytest
from support import damage
from support import drt as subject
from support.child import run_script
from support.sources import big_rows, mini, ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

SHARES = {"a": 5.0, "b": 2.0, "c": 1.0}
ORDERS = {"a": "weighted", "b": "permutation", "c": "sequential"}
SEEDS = {"a": 7, "b": 8, "c": 9}
ROWS = {"a": 30, "b": 300, "c": 4}

GO_ON = """
import json
import dataset_rt as drt
orders, seeds = ARGS["orders"], ARGS["seeds"]
runtime = drt.DatasetRuntime(num_workers=3)
datasets = {
    name: runtime.cached_dataset(
        [path], reader_config=drt.ReaderConfig(seed=seeds[name], order=orders[name], prefetch_size=5, io="pread")
    )
    for name, path in ARGS["paths"].items()
}
mixed = drt.mix(datasets, weights=ARGS["weights"], seed=3, names=True)
mixed.load_state_dict(json.loads(ARGS["state"]))
report([[name, sample.sample_id] for name, sample in mixed])
"""


def open_one(path: Path, name: str, **options: Any) -> Any:
    config = drt.ReaderConfig(**{"seed": SEEDS[name], "order": ORDERS[name], **options})
    return subject.runtime().cached_dataset([path], reader_config=config)


@pytest.fixture
def paths(base: Path) -> dict[str, Path]:
    return {name: subject.write(base, name, ten_rows(rows)) for name, rows in ROWS.items()}


@pytest.fixture
def datasets(paths: dict[str, Path]) -> dict[str, Any]:
    return {name: open_one(path, name) for name, path in paths.items()}


def mixture(datasets: dict[str, Any], **options: Any) -> Any:
    return drt.mix(datasets, **{"weights": SHARES, "seed": 3, "names": True, **options})


def take(samples: Any, count: int) -> list[tuple[str, int]]:
    return [(name, sample.sample_id) for name, sample in itertools.islice(samples, count)]


@functools.cache
def expected_at(position: int) -> tuple[str, int]:
    """The component and row at a position, in plain Python."""
    component, index = drt_plan.mixture(list(SHARES.values()), 3, position)
    name = list(SHARES)[component]
    match ORDERS[name]:
        case "weighted":
            return name, drt_plan.multinomial(ROWS[name], None, SEEDS[name], index)
        case "permutation":
            return name, drt_plan.permutation(ROWS[name], SEEDS[name], index)
        case _:
            return name, index % ROWS[name]


def expected(count: int, start: int = 0) -> list[tuple[str, int]]:
    return [expected_at(position) for position in range(start, start + count)]


# order ------------------------------------------------------------------------------------------------------------------------


def test_the_sequence_is_that_of_the_plan_in_plain_python(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    assert len(mixed) == sum(ROWS.values())
    assert take(mixed, len(mixed)) == expected(len(mixed))


def test_a_far_position_is_that_of_the_plan_too(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.load_state_dict({**mixed.state_dict(), "position": 10**12})
    assert take(mixed, 40) == expected(40, start=10**12)


def test_shares_are_exact_after_any_number_of_samples(datasets: dict[str, Any]) -> None:
    for weights in (SHARES, {"a": 0.7, "b": 0.2, "c": 0.1}, {"a": 1, "b": 1, "c": 1e-300}):
        mixed = mixture(datasets, weights=weights)
        mixed.set_epoch_len(2000)
        counts: Counter[str] = Counter()
        total = sum(weights.values())
        for done, (name, _) in enumerate(mixed, 1):
            counts[name] += 1
            assert all(abs(counts[each] - done * weight / total) < 2 for each, weight in weights.items()), done


def test_without_weights_components_come_equally_often(datasets: dict[str, Any]) -> None:
    mixed = drt.mix({"a": datasets["a"], "b": datasets["b"]}, names=True)
    assert mixed.weights == {"a": 1.0, "b": 1.0}
    names = [name for name, _ in mixed]
    assert all(set(pair) == {"a", "b"} for pair in zip(names[::2], names[1::2], strict=True))


def test_windows_of_any_lengths_are_one_stream(datasets: dict[str, Any]) -> None:
    mixed, lengths = mixture(datasets), [1, 2, 200, 7, 64, 65]
    drawn: list[tuple[str, int]] = []
    for length in lengths:
        mixed.set_epoch_len(length)
        assert len(mixed) == length
        window = take(mixed, length + 1)
        assert len(window) == length
        drawn += window
    assert drawn == expected(sum(lengths))


def test_iterators_take_their_window_at_once_and_what_they_leave_is_skipped(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(10)
    first, second = iter(mixed), iter(mixed)
    mixed.set_epoch_len(5)
    assert take(second, 99) == expected(10, start=10)
    assert take(first, 3) == expected(3)
    assert take(mixed, 99) == expected(5, start=20)


def test_without_an_end_the_next_iterator_goes_on_behind_the_last_sample(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(None)
    with pytest.raises(TypeError, match="endless"):
        len(mixed)
    assert "endless" in repr(mixed)
    assert take(mixed, 300) + take(mixed, 3) == expected(303)
    mixed.set_epoch_len(4)
    assert take(mixed, 9) == expected(4, start=303)


def test_prefetching_threads_and_ways_of_reading_leave_no_trace(base: Path) -> None:
    raw = {name: subject.write(base, name, mini(50)) for name in ("a", "b")}
    packed = {name: subject.write(base, f"{name}-lz4", mini(50), algo="lz4") for name in ("a", "b")}
    drawn = []
    for paths, num_workers, prefetch, io in [(raw, 1, 1, "mmap"), (raw, 3, 64, "pread"), (packed, 2, 3, "mmap")]:
        opened = {
            name: drt.DatasetRuntime(num_workers=num_workers).cached_dataset(
                [path], reader_config=drt.ReaderConfig(seed=5, prefetch_size=prefetch, io=io)
            )
            for name, path in paths.items()
        }
        mixed = drt.mix(opened, weights={"a": 3, "b": 1}, seed=9)
        mixed.set_epoch_len(400)
        drawn.append([(sample.sample_id, sample.data) for sample in mixed])
    assert drawn[0] == drawn[1] == drawn[2]


def test_components_may_have_other_columns_and_be_the_same_cache(base: Path) -> None:
    numbers = subject.open_dataset(subject.write(base, "numbers", [(b"n", {"n": 1})] * 3))
    texts = subject.open_dataset(subject.write(base, "texts", [(b"t", {"text": "x", "long": True})] * 3))
    mixed = drt.mix({"numbers": numbers, "texts": texts, "again": numbers}, names=True)
    found = {name: (sample.data, sample.metadata) for name, sample in mixed}
    assert found == {"numbers": (b"n", {"n": 1}), "texts": (b"t", {"text": "x", "long": True}), "again": (b"n", {"n": 1})}


def test_a_single_component_is_drawn_as_it_would_be_alone(datasets: dict[str, Any]) -> None:
    mixed = drt.mix({"b": datasets["b"]}, weights={"b": 0.1}, seed=99)
    assert subject.ids(mixed) == subject.ids(datasets["b"])


def test_a_mixture_is_a_snapshot_that_leaves_its_components_alone(datasets: dict[str, Any]) -> None:
    alone = open_one(datasets["b"].cache_paths[0], "b")
    mixed = mixture(datasets)
    first = take(mixed, 50)
    assert subject.ids(datasets["b"]) == subject.ids(alone)
    datasets["b"].update_metadata(datasets["b"].get_metadata().head(1))
    for dataset in datasets.values():
        dataset.close()
    del datasets
    gc.collect()
    assert first + take(mixed, 50) == expected(50) + expected(50, start=sum(ROWS.values()))


def test_weights_of_rows_and_of_components_work_together(datasets: dict[str, Any]) -> None:
    table = datasets["a"].get_metadata().with_columns(pl.Series("weight", [1e-9] * 29 + [1.0]))
    datasets["a"].update_metadata(table)
    mixed = mixture(datasets)
    assert {row for name, row in take(mixed, 300) if name == "a"} == {29}


# threads and errors -----------------------------------------------------------------------------------------------------------


def test_threads_share_an_iterator(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(4000)
    alone = take(mixed, 4000)
    mixed = mixture(datasets)
    mixed.set_epoch_len(4000)
    iterator, parts = iter(mixed), [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda part=part: part.extend(take(iterator, 4000))) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(itertools.chain(*parts)) == Counter(alone)


def test_threads_take_windows_of_their_own(datasets: dict[str, Any]) -> None:
    mixed, drawn = mixture(datasets), []
    mixed.set_epoch_len(10)
    threads = [threading.Thread(target=lambda: drawn.append(take(mixed, 10))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(drawn) == sorted(expected(10, start=10 * window) for window in range(20))


def test_a_sample_that_cannot_be_read_comes_in_its_turn_and_ends_the_iterator(base: Path) -> None:
    good = subject.open_dataset(subject.write(base, "good", big_rows(6, 300)))
    path = subject.write(base, "bad", big_rows(6, 300))
    file, start, _ = damage.place(path, 3)
    damage.flip(file, start + 40)
    bad = subject.open_dataset(path)
    mixed = drt.mix({"good": good, "bad": bad}, names=True)
    whole = mixed.shard(batch_size=2)
    for samples in (iter(mixed), iter(whole)):
        names = []
        with pytest.raises(drt.CorruptCacheError):
            while True:
                names.append(next(samples)[0])
        assert names.count("bad") == 3 and names.count("good") in (3, 4)
        assert list(samples) == []
    assert mixed.state_dict()["position"] == len(names), "the state is before the sample that cannot be read"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 1, "b": 1}, "'c' has no weight"),
        ({**SHARES, "d": 1}, "weight for 'd', and the components are 'a', 'b', 'c'"),
        ({**SHARES, "b": 0}, "weight of 'b' is 0,"),
        ({**SHARES, "b": -1.5}, "weight of 'b' is -1.5,"),
        ({**SHARES, "c": float("nan")}, "weight of 'c' is nan"),
        ({**SHARES, "c": float("inf")}, "weight of 'c' is inf"),
        ({**SHARES, "c": 10**400}, "weight of 'c' is 1000"),
        ({}, "'a' has no weight"),
    ],
    ids=str,
)
def test_weights_that_cannot_be_are_refused_by_name(datasets: dict[str, Any], weights: Any, message: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=message) as caught:
        mixture(datasets, weights=weights)
    assert caught.value.kind == "invalid-argument"


def test_what_is_no_component_is_refused(datasets: dict[str, Any]) -> None:
    with pytest.raises(drt.InvalidInputError, match="at least one dataset"):
        drt.mix({})
    for given in ([datasets["a"]], {1: datasets["a"]}, {"a": [1, 2]}, {"a": drt.mix(datasets)}):
        with pytest.raises(TypeError):
            drt.mix(given)  # type: ignore[arg-type, call-overload]
    for weights in ([1, 2, 3], {**SHARES, "a": "1"}, {**SHARES, "a": True}, {**SHARES, "a": None}):
        with pytest.raises(TypeError):
            mixture(datasets, weights=weights)
    for seed, error in ((-1, OverflowError), (2**64, OverflowError), (0.5, TypeError)):
        with pytest.raises(error):
            mixture(datasets, seed=seed)
    with pytest.raises(TypeError, match=r"dataset_rt\.mix"):
        drt.MixedDataset()
    datasets["b"].close()
    with pytest.raises(drt.InvalidInputError) as caught:
        mixture(datasets)
    assert caught.value.kind == "closed"


def test_epoch_lengths_that_cannot_be_are_refused_and_change_nothing(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    for length, error in ((0, drt.InvalidInputError), (2**63, OverflowError), (1.5, TypeError)):
        with pytest.raises(error):
            mixed.set_epoch_len(length)
    assert len(mixed) == 334
    mixed.set_epoch_len(2**63 - 1)
    with pytest.raises(drt.InvalidInputError) as caught:
        iter(mixed)
    assert caught.value.kind == "stream-exhausted"


def test_a_closed_mixture_says_so_and_its_iterators_go_on(datasets: dict[str, Any]) -> None:
    with mixture(datasets) as mixed:
        samples = iter(mixed)
        take(samples, 5)
    mixed.close()
    assert repr(mixed) == "MixedDataset(closed)"
    uses = [
        iter,
        len,
        lambda m: m.state_dict(),
        lambda m: m.set_epoch_len(3),
        lambda m: m.shard(batch_size=1),
        lambda m: m.weights,
    ]
    for use in uses:
        with pytest.raises(drt.InvalidInputError) as caught:
            use(mixed)
        assert caught.value.kind == "closed"
    assert take(samples, 5) == expected(5, start=5)
    samples.close()
    assert list(samples) == []
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(mixed)


# going on ---------------------------------------------------------------------------------------------------------------------


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(state)
    assert len(text) < 4096
    return json.loads(text)


def test_it_goes_on_exactly_from_every_position(datasets: dict[str, Any]) -> None:
    straight = expected(60)
    for stop in range(31):
        running, resumed = mixture(datasets), mixture(datasets)
        running.set_epoch_len(15)
        before: list[tuple[str, int]] = []
        while len(before) < stop:
            before += take(running, stop - len(before))
        resumed.load_state_dict(through_json(running.state_dict()))
        rest = 15 - stop % 15
        assert len(resumed) == rest, stop
        after = take(resumed, 99)
        assert len(after) == rest and len(resumed) == 15
        assert before + after + take(resumed, 99) == straight[: stop + rest + 15], stop


def test_it_goes_on_without_an_end(datasets: dict[str, Any]) -> None:
    running, resumed = mixture(datasets), mixture(datasets)
    running.set_epoch_len(None)
    before = take(running, 77)
    state = through_json(running.state_dict())
    assert (state["position"], state["rest"], state["epoch_len"]) == (77, 0, None)
    resumed.load_state_dict(state)
    assert before + take(resumed, 50) == expected(127)
    assert take(running, 50) == expected(50, start=77), "saving changes nothing"


def test_what_a_closed_iterator_leaves_is_given_up(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(15)
    samples = iter(mixed)
    take(samples, 4)
    assert (mixed.state_dict()["position"], mixed.state_dict()["rest"], mixed.state_dict()["pass"]) == (4, 11, 0)
    samples.close()
    assert (mixed.state_dict()["position"], mixed.state_dict()["rest"], mixed.state_dict()["pass"]) == (15, 0, 1)


def test_another_process_goes_on(paths: dict[str, Path], datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    before = take(mixed, 100)
    state = json.dumps(mixed.state_dict())
    given = {name: str(path) for name, path in paths.items()}
    after = run_script(GO_ON, {"paths": given, "state": state, "orders": ORDERS, "seeds": SEEDS, "weights": SHARES})
    assert before + [tuple(pair) for pair in after] == expected(334)


def test_the_state_of_another_stream_is_refused_by_component(paths: dict[str, Path], datasets: dict[str, Any]) -> None:
    state = mixture(datasets).state_dict()
    edited = open_one(paths["c"], "c")
    edited.update_metadata(edited.get_metadata().reverse())
    fewer = open_one(paths["b"], "b")
    fewer.update_metadata(fewer.get_metadata().head(10))
    others = [
        (mixture(datasets, seed=4), "the seed of the mixture is 4 here and was 3"),
        (mixture(datasets, weights={**SHARES, "b": 2.5}), "of 'b' the weight is 2.5 here and was 2.0"),
        (mixture(dict(reversed(datasets.items()))), r"the components are \['c', 'b', 'a'\] here and were \['a', 'b', 'c'\]"),
        (mixture({**datasets, "a": open_one(paths["a"], "a", seed=1)}), "of 'a' the seed is 1 here and was 7"),
        (mixture({**datasets, "a": open_one(paths["a"], "a", order="sequential")}), "of 'a' the order is 'sequential' here"),
        (mixture({**datasets, "c": edited}), "of 'c' the rows of the active table differ"),
        (mixture({**datasets, "b": fewer}), "of 'b' the number of active rows is 10 here and was 300"),
        (mixture({**datasets, "a": open_one(paths["b"], "a")}), "of 'a' the caches differ"),
    ]
    for other, message in others:
        take(other, 3)
        before = other.state_dict()
        with pytest.raises(drt.StateMismatchError, match=message) as caught:
            other.load_state_dict(state)
        assert caught.value.kind == "state-mismatch"
        assert other.state_dict() == before
        other.load_state_dict({**state, "position": 5}, strict=False)
        assert other.state_dict()["position"] == 5
    # What a sequential order does not depend on may differ.
    mixture({**datasets, "c": open_one(paths["c"], "c", seed=77)}).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "dataset-rt/state"}, {"position": -1}, {"position": 1.0}, {"position": None}, {"position": 2**63},
        {"rest": "3"}, {"pass": True}, {"epoch_len": 0}, {"mixture": None}, {"mixture": {}}, {"mixture": {"components": 3}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_state_is_refused(datasets: dict[str, Any], change: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    for strict in (True, False):
        with pytest.raises(drt.InvalidInputError) as caught:
            mixed.load_state_dict({**mixed.state_dict(), **change}, strict=strict)
        assert caught.value.kind == "invalid-state"


def test_a_state_of_a_later_version_is_refused(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    with pytest.raises(drt.StateMismatchError, match="version 2"):
        mixed.load_state_dict({**mixed.state_dict(), "version": 2})
    for state in (None, [], "{}"):
        with pytest.raises(drt.InvalidInputError):
            mixed.load_state_dict(state)  # type: ignore[arg-type]


# states of iterators ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [True, False])
def test_an_iterator_goes_on_from_every_position_of_its_window(datasets: dict[str, Any], names: bool) -> None:
    rows = take if names else lambda samples, count: subject.ids(itertools.islice(samples, count))
    straight = expected(12, start=12) if names else [row for _, row in expected(12, start=12)]
    for stop in range(13):
        running, resumed = mixture(datasets, names=names), mixture(datasets, names=names)
        for mixed in (running, resumed):
            mixed.set_epoch_len(12)
            iter(mixed)
        samples, others, whole = iter(running), iter(resumed), mixture(datasets, names=names)
        assert rows(samples, stop) == straight[:stop]
        state = through_json(samples.state_dict())
        assert state == running.state_dict(), "the mixture's is that of its newest iterator"
        behind = (2, 24, 0) if stop == 12 else (1, 12 + stop, 12 - stop)
        assert (state["pass"], state["position"], state["rest"]) == behind
        others.load_state_dict(state)
        assert others.state_dict() == state and resumed.state_dict() == state
        assert rows(others, 99) == straight[stop:] == rows(samples, 99)
        others.load_state_dict(state)
        assert rows(others, 99) == straight[stop:], "also backwards"
        whole.load_state_dict(state)
        assert len(whole) == (12 if stop == 12 else 12 - stop)


def test_an_iterator_takes_the_state_of_a_mixture(datasets: dict[str, Any]) -> None:
    running, resumed = mixture(datasets), mixture(datasets)
    take(running, 300)
    samples = iter(resumed)
    samples.load_state_dict(through_json(running.state_dict()))
    assert take(samples, 99) == expected(34, start=300)
    assert take(resumed, 5) == expected(5, start=334), "its window is where it was"


def test_an_iterator_without_an_end_goes_on(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(None)
    samples = iter(mixed)
    take(samples, 7)
    state = through_json(samples.state_dict())
    assert (state["pass"], state["position"], state["rest"], state["epoch_len"]) == (0, 7, 0, None)
    samples.load_state_dict({**state, "position": 10**12})
    assert take(samples, 300) == expected(300, start=10**12)
    assert take(mixed, 3) == expected(3, start=10**12 + 300)
    samples.close()
    assert (samples.state_dict()["pass"], samples.state_dict()["position"]) == (1, 10**12 + 300)


def test_a_closed_or_finished_iterator_is_behind_its_window_and_can_go_back(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(10)
    beginning = iter(mixed).state_dict()
    for end in (lambda each: each.close(), lambda each: take(each, 99)):
        mixed.load_state_dict({**beginning, "rest": 10})
        samples = iter(mixed)
        take(samples, 4)
        state = samples.state_dict()
        end(samples)
        ended = samples.state_dict()
        assert [ended[key] for key in ("pass", "position", "rest", "epoch_len")] == [1, 10, 0, 10]
        assert take(samples, 9) == []
        samples.load_state_dict(state)
        assert (samples.state_dict(), len(list(samples))) == (state, 6)
    mixed.close()
    samples.load_state_dict(state)
    assert take(samples, 99) == expected(6, start=4), "a closed mixture's iterators go on"


def test_states_that_do_not_fit_leave_an_iterator_as_it_was(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(10)
    first, second = iter(mixed), iter(mixed)
    take(second, 3)
    before = second.state_dict()
    with pytest.raises(drt.StateMismatchError, match="position 0, and this iterator has the positions 10 to 20"):
        second.load_state_dict(first.state_dict())
    with pytest.raises(drt.StateMismatchError, match="position 21, and"):
        second.load_state_dict({**before, "position": 21})
    with pytest.raises(drt.InvalidInputError) as caught:
        second.load_state_dict({**before, "position": "12"})
    assert caught.value.kind == "invalid-state"
    other = {**mixture(datasets, seed=4).state_dict(), "position": 15}
    with pytest.raises(drt.StateMismatchError, match="the seed of the mixture is 3 here and was 4"):
        second.load_state_dict(other)
    assert second.state_dict() == before
    second.load_state_dict(other, strict=False)
    assert take(second, 99) == expected(5, start=15)
    for copying in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="pickle"):
            copying(first)


def test_threads_take_samples_while_another_jumps(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(2000)
    samples, found = iter(mixed), []
    state = samples.state_dict()
    readers = [threading.Thread(target=lambda: found.extend(samples)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for position in range(0, 2000, 100):
        samples.load_state_dict({**state, "position": position})
        assert 0 <= samples.state_dict()["position"] <= 2000
    for reader in readers:
        reader.join()
    known = set(expected(2000))
    assert {(name, sample.sample_id) for name, sample in found} <= known and len(found) >= 100
    samples.load_state_dict(state)
    assert take(samples, 9999) == expected(2000)


def test_steps_of_an_iterator_run_no_python(datasets: dict[str, Any]) -> None:
    samples, calls = iter(mixture(datasets)), []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        collections.deque(samples, maxlen=0)
    finally:
        sys.setprofile(None)
    assert "call" not in calls


# shards -----------------------------------------------------------------------------------------------------------------------


def global_batches(mixed: Any, world_size: int, batch_size: int, epochs: int) -> list[list[tuple[str, int]]]:
    """The batches of all ranks together, step by step."""
    shards = [mixed.shard(batch_size=batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]
    batches = []
    for epoch in range(epochs):
        parts = []
        for shard in shards:
            shard.set_epoch(epoch)
            part = take(shard, 10**6)
            assert len(part) == len(shard)
            parts.append([part[at : at + batch_size] for at in range(0, len(part), batch_size)])
        batches += [list(itertools.chain(*step)) for step in zip(*parts, strict=True)]
    return batches


@pytest.mark.parametrize(("world_size", "batch_size"), [(1, 12), (2, 6), (3, 4), (4, 3), (12, 1)])
def test_shards_of_any_number_of_ranks_are_slices_of_one_stream(
    datasets: dict[str, Any], world_size: int, batch_size: int
) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(100)  # 9 steps: the last one takes the next samples of the stream
    batches = global_batches(mixed, world_size, batch_size, epochs=2)
    assert list(itertools.chain(*batches)) == expected(2 * 9 * 12)


def test_shards_without_incomplete_steps(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(100)
    shard = mixed.shard(batch_size=6, rank=1, world_size=2, drop_last=True)
    assert (len(shard), shard.batch_size) == (8 * 6, 6)
    shard.set_epoch(1)
    assert take(shard, 6) == expected(6, start=8 * 12 + 6)
    with pytest.raises(drt.InvalidInputError, match="nothing is left"):
        mixed.shard(batch_size=101, drop_last=True)


def test_a_shard_begins_where_the_stream_is_and_goes_on_at_any_step(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(20)
    take(mixed, 20)
    shard = mixed.shard(batch_size=4)
    again = pickle.loads(pickle.dumps(shard))
    shard.set_epoch(2, step=3)
    assert take(shard, 99) == expected(8, start=20 + 2 * 20 + 3 * 4)
    assert take(again, 99) == expected(20, start=20)
    assert take(mixed, 20) == expected(20, start=20), "the mixture's own place stays"


def test_an_endless_shard(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    mixed.set_epoch_len(None)
    shard = mixed.shard(batch_size=2, rank=1, world_size=2)
    with pytest.raises(TypeError):
        len(shard)
    with pytest.raises(drt.InvalidInputError, match="one epoch"):
        shard.set_epoch(1)
    shard.set_epoch(0, step=50)
    stream = expected(8, start=200)
    assert take(shard, 4) == stream[2:4] + stream[6:8]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, drt.InvalidInputError),
        ({"batch_size": 1.5}, TypeError),
        ({"batch_size": 1, "rank": 2, "world_size": 2}, drt.InvalidInputError),
        ({"batch_size": 1, "rank": -1}, drt.InvalidInputError),
        ({"batch_size": 1, "world_size": 0}, drt.InvalidInputError),
    ],
    ids=str,
)
def test_shards_that_cannot_be_are_refused(datasets: dict[str, Any], options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        mixture(datasets).shard(**options)
    shard = mixture(datasets).shard(batch_size=10)
    for epoch, step in ((-1, 0), (0, -1), (0, 35), (2**62, 0), (2**70, 0)):
        with pytest.raises(drt.InvalidInputError):
            shard.set_epoch(epoch, step=step)
