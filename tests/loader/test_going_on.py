"""One stream for all consumers, and loaders that go on where another one was."""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import drt_plan
import polars as pl
from dataset_rt import InvalidInputError, ReaderConfig, StateMismatchError
from support import drt, loading, sources
from support.child import run_script, start_script
from support.loading import flat

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="forks")]

PARTITIONS = ("split", "replicate", "stream")
PROCESSES: dict[str, dict[str, Any]] = {
    "none": {"num_workers": 0},
    "pinned": {"num_workers": 0, "pin_memory": True},
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "three-not-persistent": {"num_workers": 3, "persistent_workers": False},
}


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    yield
    loading.end_processes()


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Forty-five rows of uneven weights."""
    dataset = drt.open_dataset(drt.write(tmp_path_factory.mktemp("caches"), "mini", sources.mini(45)))
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 + pl.col("i") % 4))
    return dataset


def made(dataset: Any, **options: Any) -> Any:
    """A loader that draws by weight, with forked processes if any."""
    defaults = {"shuffle": options.get("order") != "sequential", "multiprocessing_context": "fork", "batch_size": 4}
    if options.get("order") != "sequential":
        defaults["seed"] = 3
    return loading.loader(dataset, **{**defaults, **options})


def saved(batches: Any) -> dict[str, Any]:
    text = json.dumps(batches.state_dict())
    assert len(text) < 4096
    return json.loads(text)


# one stream -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("order", ["weighted", "permutation", "sequential"])
@pytest.mark.filterwarnings("ignore:.*(pin|worker processes|accelerator)")
def test_one_stream_is_that_of_the_plan_whatever_the_processes(weighted: Any, order: str, processes: dict[str, Any]) -> None:
    batches = made(weighted, order=order, worker_partition="stream", **processes)
    drawn = [flat(batches) for _ in range(2)]
    weights = [1.0 + i % 4 for i in range(45)]
    alias = drt_plan.alias_table(weights)
    rules = {
        "weighted": lambda at: drt_plan.multinomial(45, alias, 3, at),
        "permutation": lambda at: drt_plan.permutation(45, 3, at),
        "sequential": lambda at: at % 45,
    }
    assert [len(each) for each in drawn] == [48, 48]
    assert drawn[0] + drawn[1] == [rules[order](at) for at in range(96)]


def test_a_permutation_gives_each_row_once_in_as_many_samples_as_there_are_rows(weighted: Any) -> None:
    batches = made(weighted, order="permutation", num_workers=2)
    drawn = flat(itertools.chain.from_iterable(list(batches) for _ in range(15)))
    epochs = [drawn[start : start + 45] for start in range(0, len(drawn), 45)]
    assert len(epochs) == 16
    assert all(sorted(epoch) == list(range(45)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 16


def test_batches_of_one_stream_that_travel_as_references_are_the_same(weighted: Any) -> None:
    plain = made(weighted, worker_partition="stream", num_workers=0)
    references = made(weighted, worker_partition="stream", num_workers=2, collate_fn=loading.same)
    for _ in range(2):
        assert list(map(loading.numbers, references)) == list(plain)


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.filterwarnings("ignore:.*(pin|worker processes|accelerator)")
def test_one_stream_goes_on_behind_what_was_delivered_of_a_pass_that_was_given_up(
    weighted: Any, processes: dict[str, Any]
) -> None:
    batches = made(weighted, order="sequential", worker_partition="stream", **processes)
    begun = [list(itertools.islice(batches, 3)) for _ in range(3)]
    assert flat(flat(begun)) + flat(batches) == [at % 45 for at in range(36 + 48)]


def test_one_stream_needs_no_warning_about_processes_that_are_not_persistent(weighted: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weighted.to_torch_dataloader(
            worker_partition="stream", batch_size=9, num_workers=1, persistent_workers=False, verbose=False,
            multiprocessing_context="fork",
        )  # fmt: skip
    assert [str(each.message) for each in caught] == []


@pytest.mark.parametrize(("drop_last", "delivered"), [(False, 48), (True, 44)])
def test_steps_that_do_not_divide_the_samples_are_told(weighted: Any, drop_last: bool, delivered: int) -> None:
    with pytest.warns(UserWarning, match=rf"45 .* {delivered} .* in whole steps of 4; .* none comes twice or is lost"):
        batches = weighted.to_torch_dataloader(
            order="sequential", worker_partition="stream", batch_size=4, num_workers=0, verbose=False, drop_last=drop_last,
            collate_fn=loading.numbers,
        )  # fmt: skip
    assert loading.flat([*batches, *batches]) == [number % 45 for number in range(2 * delivered)]


def test_a_refreshed_table_begins_one_stream_anew(weighted: Any) -> None:
    dataset = drt.open_dataset(weighted.cache_paths[0])
    for num_workers in (0, 2):
        dataset.update_metadata(drt.open_dataset(weighted.cache_paths[0]).get_metadata())
        batches = made(dataset, order="sequential", worker_partition="stream", num_workers=num_workers)
        list(itertools.islice(batches, 2))
        dataset.update_metadata(dataset.get_metadata()[:6])
        batches.refresh(dataset)
        assert saved(batches)["position"] == saved(batches)["pass"] == 0
        assert [list(batches), list(batches)] == [[[0, 1, 2, 3], [4, 5, 0, 1]], [[2, 3, 4, 5], [0, 1, 2, 3]]]


# going on ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.filterwarnings("ignore:.*(pin|worker processes|accelerator)")
def test_a_run_that_is_stopped_many_times_is_the_straight_run(weighted: Any, partition: str, processes: dict[str, Any]) -> None:
    """Before the first batch, within passes, behind the last batch, each state from the run before."""
    options = {"worker_partition": partition, **processes}
    straight = made(weighted, **options)
    expected = [list(straight) for _ in range(3)]
    length = len(straight)
    assert (expected[0] != expected[1]) is (partition == "stream" or processes.get("persistent_workers", True))
    stops = (0, 1, 5, 6, length, length + 3, 2 * length - 1, 2 * length + 1)
    if processes["num_workers"]:  # starting them takes its time
        stops = (0, 5, length, 2 * length + 1)
    found: list[Any] = []
    state = saved(made(weighted, **options))
    for stop in stops:
        batches = made(weighted, **options)
        batches.load_state_dict(state)
        assert saved(batches) == state
        assert len(batches) == length
        while len(found) < stop:
            rest = length - len(found) % length
            passing = iter(batches)
            if not batches.pin_memory:
                assert len(passing) == rest
            found += itertools.islice(passing, min(rest, stop - len(found)))
        state = saved(batches)
        assert (state["pass"], state["delivered"]) == divmod(stop, length)
    batches = made(weighted, **options)
    batches.load_state_dict(state)
    found += batches
    assert found == flat(expected)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("processes", [PROCESSES["none"], PROCESSES["two"]], ids=["none", "two"])
def test_processes_that_are_alive_follow_a_state(weighted: Any, partition: str, processes: dict[str, Any]) -> None:
    batches = made(weighted, worker_partition=partition, collate_fn=loading.same, **processes)
    first = iter(batches)
    expected = [loading.numbers(next(first)) for _ in range(5)]
    state = saved(batches)
    expected += map(loading.numbers, first)
    second = list(map(loading.numbers, batches))
    for _ in range(2):
        batches.load_state_dict(state)
        assert list(map(loading.numbers, batches)) == expected[5:]
        assert list(map(loading.numbers, batches)) == second


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_pass_that_was_given_up_and_the_next_one_can_be_gone_on_with(weighted: Any, partition: str) -> None:
    for num_workers in (0, 2):
        batches = made(weighted, worker_partition=partition, num_workers=num_workers)
        list(itertools.islice(batches, 3))
        passing = iter(batches)
        list(itertools.islice(passing, 3))
        state = saved(batches)
        assert (state["pass"], state["delivered"]) == (1, 3)
        rest, after = list(passing), list(batches)
        other = made(weighted, worker_partition=partition, num_workers=num_workers)
        other.load_state_dict(state)
        assert [list(other), list(other)] == [rest, after]


def test_one_stream_goes_on_with_other_processes_and_another_batch_size(weighted: Any) -> None:
    """On one rank; `test_distributed` has several."""
    straight = made(weighted, order="permutation", num_workers=0, batch_size=4)
    expected = flat(list(straight) + list(straight))
    first = made(weighted, order="permutation", num_workers=2, batch_size=4)
    begun = flat(itertools.islice(first, 6))
    state = saved(first)
    for batch_size, options in ((4, PROCESSES["none"]), (4, PROCESSES["three-not-persistent"]), (8, PROCESSES["two"])):
        second = made(weighted, order="permutation", batch_size=batch_size, **options)
        second.load_state_dict(state)
        found = begun + flat(second)
        assert len(found) == 48, "the pass has its length"
        assert found + flat(second) == expected
    other = made(weighted, order="permutation", num_workers=0, batch_size=5)
    with pytest.raises(StateMismatchError, match="24 samples are left of the pass, which are no whole steps of 5"):
        other.load_state_dict(state)
    assert flat(other) == expected[:45]
    other.load_state_dict(state, strict=False)
    assert len(list(other)) == 5
    between = made(weighted, order="permutation", num_workers=0, batch_size=4)
    list(between)
    other.load_state_dict(saved(between))
    assert flat(other) == expected[48:93]


def test_what_processes_have_ready_does_not_count(weighted: Any) -> None:
    batches = made(weighted, worker_partition="stream", num_workers=2, prefetch_factor=5)
    passing = iter(batches)
    assert saved(batches)["delivered"] == 0
    next(passing)
    assert saved(batches)["delivered"] == 1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_in_place_of_a_batch_counts_as_one(base: Path, num_workers: int) -> None:
    dataset = drt.open_dataset(drt.write(base, "ten", sources.ten_rows()))
    options: dict[str, Any] = {
        "order": "sequential", "worker_partition": "stream", "num_workers": num_workers, "batch_size": 2,
        "sample_transform_fn": loading.refuses_five, "collate_fn": loading.same,
    }  # fmt: skip
    batches = made(dataset, **options)
    passing = iter(batches)
    assert [next(passing), next(passing)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="five"):
        next(passing)
    state = saved(batches)
    assert list(passing) == [[6, 7], [8, 9]]
    other = made(dataset, **options)
    other.load_state_dict(state)
    assert list(other) == [[6, 7], [8, 9]]


def test_an_exception_that_is_no_batchs_does_not_count(weighted: Any) -> None:
    batches = made(weighted, worker_partition="stream", num_workers=1, collate_fn=loading.with_process, batch_size=1)
    passing = iter(batches)
    (pid, _) = next(passing)
    os.kill(pid, signal.SIGKILL)
    delivered = 1
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for _ in passing:
            delivered += 1
    assert saved(batches)["delivered"] == delivered


def test_batches_that_overtake_each_other_have_no_place_within_a_pass(weighted: Any) -> None:
    in_any_order = {"in_order": False}
    try:
        batches = made(weighted, worker_partition="split", num_workers=1, dataloader_kwargs=in_any_order)
    except TypeError:
        pytest.skip("this torch has no in_order")
    passing = iter(batches)
    next(passing)
    with pytest.raises(InvalidInputError, match="in_order"):
        batches.state_dict()
    list(passing)
    assert saved(batches)["pass"] == 1
    with pytest.raises(InvalidInputError, match="in_order"):
        made(weighted, worker_partition="stream", num_workers=1, dataloader_kwargs=in_any_order)


# states that do not fit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 4}, "the seed is 4 here and was 3"),
        ({"order": "sequential"}, "the order is sequential here and was weighted"),
        ({"worker_partition": "stream"}, "the worker_partition is stream here and was split"),
        ({"samples_per_epoch": 44}, "the number of samples of a pass is 44 here and was 45"),
        ({"batch_size": 5}, "the batch size is 5 here and was 4"),
        ({"drop_last": True}, "drop_last is True here and was False"),
        ({"num_workers": 3}, "the number of consumers of a rank is 3 here and was 2"),
        ({"persistent_workers": False}, "whether each pass begins anew is True here and was False"),
    ],
    ids=str,
)
def test_a_state_of_another_loader_is_refused_in_words_and_changes_nothing(
    weighted: Any, options: dict[str, Any], words: str
) -> None:
    first = made(weighted, worker_partition="split", num_workers=2)
    list(itertools.islice(first, 3))
    state = saved(first)
    second = made(weighted, **{"worker_partition": "split", "num_workers": 2, **options})
    before = saved(second)
    with pytest.raises(StateMismatchError) as caught:
        second.load_state_dict(state)
    assert words in str(caught.value)
    assert saved(second) == before
    second.load_state_dict(state, strict=False)
    assert saved(second)["delivered"] == len(second) - len(list(second))


def test_another_table_or_cache_is_told(weighted: Any, base: Path) -> None:
    state = saved(made(weighted))
    dataset = drt.open_dataset(weighted.cache_paths[0])
    with pytest.raises(StateMismatchError, match="the weights differ"):
        made(dataset).load_state_dict(state)
    dataset.update_metadata(weighted.get_metadata().reverse())
    with pytest.raises(StateMismatchError, match="the rows of the active table differ"):
        made(dataset).load_state_dict(state)
    other = drt.open_dataset(drt.write(base, "other", sources.ten_rows(45)))
    with pytest.raises(StateMismatchError, match="the caches differ"):
        made(other).load_state_dict(state)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "dataset-rt/state"), (("plan",), 1), (("plan", "seed"), None), (("partition",), "halves"), (("pass",), -1),
        (("delivered",), 12), (("delivered",), True), (("position",), "0"), (("consumers",), None), (("consumers",), []),
        (("consumers",), [0, -1]), (("consumers",), [0.5]), (("batch_size",), 0), (("ranks",), 2**63), (("drop_last",), 1),
        (("samples",), None), (("repeats",), "no"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_state_is_refused(weighted: Any, path: tuple[str, ...], value: Any) -> None:
    batches = made(weighted, num_workers=0)
    state = saved(batches)
    damaged: Any = copy.deepcopy(state)
    within = damaged
    for name in path[:-1]:
        within = within[name]
    within[path[-1]] = value
    if path != ("plan", "seed"):
        with pytest.raises(InvalidInputError, match="no state of a loader"):
            batches.load_state_dict(damaged, strict=False)
    del within[path[-1]]
    with pytest.raises(InvalidInputError, match="no state of a loader"):
        batches.load_state_dict(damaged, strict=False)
    assert saved(batches) == state


def test_states_of_other_versions_and_things_are_refused(weighted: Any) -> None:
    batches = made(weighted)
    with pytest.raises(StateMismatchError, match="version 2, and this release reads version 1"):
        batches.load_state_dict({**saved(batches), "version": 2})
    for thing in (None, [], weighted.state_dict()):
        with pytest.raises(InvalidInputError, match="no state of a loader"):
            batches.load_state_dict(thing)


def test_the_plan_of_a_loader_is_described_as_that_of_a_dataset(weighted: Any) -> None:
    for order in ("weighted", "sequential", "permutation"):
        config = ReaderConfig(seed=3, order=order)
        dataset = drt.runtime().cached_dataset(weighted.cache_paths, reader_config=config)
        dataset.update_metadata(weighted.get_metadata())
        batches = made(weighted, order=order, worker_partition="stream")
        assert batches.state_dict()["plan"] == dataset.state_dict()["plan"]


# torchdata ---------------------------------------------------------------------------------------------------------------------


def test_torchdatas_loader_keeps_the_state_of_the_iterable_dataset(weighted: Any) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

    def dataset() -> Any:
        opened = drt.open_dataset(weighted.cache_paths[0], seed=5, shuffle=True)
        return torchdata.StatefulDataLoader(opened.to_torch_iterable_dataset(), batch_size=10, collate_fn=loading.numbers)

    straight = dataset()
    expected = [*straight, *straight, *straight]
    found: list[Any] = []
    state = json.loads(json.dumps(dataset().state_dict()))
    for stop in (2, 3, 5, 9, 15):
        batches = dataset()
        batches.load_state_dict(state)
        while len(found) < stop:
            found += itertools.islice(batches, stop - len(found))
        state = json.loads(json.dumps(batches.state_dict()))
    assert found == expected


def test_loaders_have_the_names_that_trainers_ask_for(weighted: Any) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader.stateful", reason="needs torchdata")
    assert isinstance(made(weighted), stateful.Stateful)
    assert isinstance(weighted.to_torch_iterable_dataset(), stateful.Stateful)


# killed ------------------------------------------------------------------------------------------------------------------------

TRAINING = """
import json, os, pathlib
from support import drt, loading

folder = pathlib.Path(ARGS["folder"])
dataset = drt.open_dataset(ARGS["path"])
batches = loading.loader(dataset, order="permutation", shuffle=True, seed=3, batch_size=4, num_workers=ARGS["workers"],
                         multiprocessing_context="fork")
consumed, saved = [], folder / "checkpoint.json"
if saved.exists():
    checkpoint = json.loads(saved.read_text())
    consumed = checkpoint["consumed"]
    batches.load_state_dict(checkpoint["loader"])
while len(consumed) < ARGS["steps"]:
    for batch in batches:
        consumed.append(batch)
        if len(consumed) % ARGS["every"] == 0:
            fresh = folder / "fresh.json"
            fresh.write_text(json.dumps({"consumed": consumed, "loader": batches.state_dict()}))
            os.replace(fresh, saved)
        print(len(consumed), flush=True)
        if len(consumed) == ARGS["steps"]:
            break
report(consumed)
if batches._iterator is not None:
    batches._iterator._shutdown_workers()
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint_as_if_nothing_had_been(weighted: Any, tmp_path: Path) -> None:
    numbers = random.Random(8)
    arguments = {"path": str(weighted.cache_paths[0]), "folder": str(tmp_path), "steps": 40, "every": 3}
    for workers in (2, 0, 1):
        process = start_script(TRAINING, {**arguments, "workers": workers})
        assert process.stdout is not None
        for _ in range(numbers.randrange(5, 14)):  # batches of this run until it is killed, at whatever it does then
            assert process.stdout.readline()
        process.kill()
        process.communicate()
    consumed = run_script(TRAINING, {**arguments, "workers": 0})
    assert flat(consumed) == [drt_plan.permutation(45, 3, at) for at in range(160)]
