"""Loaders of mixtures: one stream for all ranks and processes, and going on exactly where a loader was."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import json
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

with contextlib.suppress(ImportError):
    import numpy.random  # noqa: F401  # otherwise each forked process imports it, whatever else goes on there

import dataset_rt as drt
from dataset_rt._torch import options as loader_options
from dataset_rt._torch.distributed import World
from dataset_rt._torch.loader import assemble
from dataset_rt._torch.mixed_loader import MixedLoader, MixedPasses
from support import damage, loading
from support import drt as subject
from support.child import run_program
from support.loading import flat, named_rows
from support.sources import big_rows, ten_rows

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="forks")]

PROCESSES: dict[str, dict[str, Any]] = {
    "none": {"num_workers": 0},
    "pinned": {"num_workers": 0, "pin_memory": True},
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "two-not-persistent": {"num_workers": 2, "persistent_workers": False},
}
EACH_OF = pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
QUIET = pytest.mark.filterwarnings("ignore:.*(pin|worker processes|accelerator)")


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    yield
    loading.end_processes()


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    base = tmp_path_factory.mktemp("caches")
    return {
        name: subject.runtime().cached_dataset(
            [subject.write(base, name, ten_rows(rows))], reader_config=drt.ReaderConfig(seed=rows, order=order)
        )
        for name, rows, order in (("a", 40, "weighted"), ("b", 7, "permutation"))
    }


def mixture(datasets: dict[str, Any], epoch_len: int | None = 50, **options: Any) -> Any:
    mixed = drt.mix(datasets, **{"weights": {"a": 0.75, "b": 0.25}, "seed": 4, "names": True, **options})
    mixed.set_epoch_len(epoch_len)
    return mixed


@pytest.fixture
def mixed(datasets: dict[str, Any]) -> Any:
    return mixture(datasets)


@pytest.fixture
def straight(datasets: dict[str, Any]) -> list[tuple[str, int]]:
    """The first samples of the stream."""
    return named_rows(list(itertools.islice(mixture(datasets, None), 1000)))


def made(mixed: Any, **options: Any) -> Any:
    """A loader with forked processes, if any."""
    defaults = {"batch_size": 6, "num_workers": 0, "collate_fn": named_rows, "multiprocessing_context": "fork"}
    return loading.kept(mixed.to_torch_dataloader(**{**defaults, **options}))


def ranks(mixed: Any, world_size: int, start: int = 0, **options: Any) -> list[Any]:
    """The loaders of several training processes, in this one: what a process group would say, said here."""
    own = inspect.signature(mixed.to_torch_dataloader).parameters
    asked = loader_options.resolve_mixed(
        epoch_len=mixed._epoch_len,
        world_size=world_size,
        **{
            **{name: each.default for name, each in own.items()},
            **{"collate_fn": named_rows, "multiprocessing_context": "fork", **options},
        },
    )
    return [
        loading.kept(assemble(MixedLoader, MixedPasses(mixed._blend, start, asked, World(world_size, rank))))
        for rank in range(world_size)
    ]


def steps(loaders: list[Any], count: int | None = None) -> list[Any]:
    """The global batches of a pass, or some of them."""
    passes = [iter(each) for each in loaders]
    together = zip(*(itertools.islice(each, count) for each in passes), strict=True)
    return [list(itertools.chain(*step)) for step in together]


def saved(batches: Any) -> dict[str, Any]:
    text = json.dumps(batches.state_dict())
    assert len(text) < 4096
    return json.loads(text)


# one stream -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world_size", "batch_size", "num_workers"), [(1, 12, 0), (1, 12, 2), (2, 6, 0), (2, 6, 2), (3, 4, 1), (4, 3, 0)]
)
def test_global_batches_are_the_same_for_any_ranks_and_processes_and_those_of_shards(
    mixed: Any, straight: list[Any], world_size: int, batch_size: int, num_workers: int
) -> None:
    loaders = ranks(mixed, world_size, batch_size=batch_size, num_workers=num_workers)
    passes = [steps(loaders) for _ in range(2)]
    assert [list(map(len, each)) for each in passes] == [[12] * 5] * 2, "the last step takes the next samples"
    assert flat(flat(passes)) == straight[:120]
    for rank, loader in enumerate(ranks(mixed, world_size, batch_size=batch_size, num_workers=0)):
        shard = mixed.shard(batch_size=batch_size, rank=rank, world_size=world_size)
        assert flat(loader) == named_rows(list(shard))
        assert len(loader) == 5


@EACH_OF
@QUIET
def test_passes_join_also_those_that_were_given_up(mixed: Any, straight: list[Any], processes: dict[str, Any]) -> None:
    batches = made(mixed, **processes)
    begun = [list(itertools.islice(batches, 2)) for _ in range(3)]
    whole = [list(batches) for _ in range(2)]
    assert [len(batches), *map(len, whole)] == [9, 9, 9]
    assert flat(flat(begun) + flat(whole)) == straight[: 3 * 12 + 2 * 54]


def test_spawned_processes_give_the_same(datasets: dict[str, Any], straight: list[Any]) -> None:
    batches = made(mixture(datasets), num_workers=1, multiprocessing_context="spawn")
    assert flat(list(batches) + list(batches)) == straight[:108]


def test_incomplete_steps_are_left_to_the_next_pass(mixed: Any, straight: list[Any]) -> None:
    for num_workers in (0, 2):
        batches = made(mixed, num_workers=num_workers, drop_last=True)
        passes = [list(batches), list(batches)]
        assert [len(batches), *map(len, passes)] == [8, 8, 8]
        assert flat(flat(passes)) == straight[:96]
    with pytest.raises(drt.InvalidInputError, match="nothing is left of 50 samples for global batches of 51"):
        made(mixed, batch_size=51, drop_last=True)


def test_a_pass_has_as_many_samples_as_asked_for_and_nothing_is_said_about_it(mixed: Any, straight: list[Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = made(mixed, samples_per_epoch=20, num_workers=1, persistent_workers=False)
        assert flat(batches) == straight[:24]
    assert [str(each.message) for each in caught] == []


def test_a_pass_without_an_end(datasets: dict[str, Any], straight: list[Any]) -> None:
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": False}):
        batches = made(mixture(datasets, None), **options)
        for thing in (batches, iter(batches), batches.dataset):
            with pytest.raises(TypeError, match="without an end"):
                len(thing)
        first = list(itertools.islice(batches, 20))
        state = saved(batches)
        assert [state[key] for key in ("samples", "pass", "delivered", "position")] == [None, 0, 20, 120]
        second = list(itertools.islice(batches, 20))
        assert flat(first + second) == straight[:240]
        other = made(mixture(datasets, None), batch_size=7)
        other.load_state_dict(state)
        assert flat(itertools.islice(other, 10)) == straight[120:190], "any steps fit what has no end"
        assert len(list(made(mixture(datasets, None), samples_per_epoch=60))) == 10


def test_a_loader_begins_where_the_mixture_is_and_leaves_it_there(datasets: dict[str, Any], straight: list[Any]) -> None:
    mixed = mixture(datasets)
    list(mixed)
    batches = made(mixed)
    assert saved(batches)["position"] == 50
    assert flat(batches) == straight[50:104]
    assert named_rows(list(mixed)) == straight[50:100]
    mixed.close()
    assert flat(batches) == straight[104:158]
    with pytest.raises(drt.InvalidInputError) as caught:
        made(mixed)
    assert caught.value.kind == "closed"


def test_a_loader_far_out_is_a_jump_and_ends_before_positions_do(datasets: dict[str, Any]) -> None:
    mixed = mixture(datasets)
    state = mixed.state_dict()
    mixed.load_state_dict({**state, "position": 10**15})
    for loaders in ([made(mixed)], ranks(mixed, 2, start=10**15, batch_size=3)):
        assert flat(steps(loaders)[:8]) == named_rows(list(mixed))[:48]
        mixed.load_state_dict({**state, "position": 10**15})
    mixed.load_state_dict({**state, "position": 2**62})
    with pytest.raises(drt.InvalidInputError) as caught:
        made(mixed)
    assert caught.value.kind == "stream-exhausted"


def test_two_passes_at_once_share_the_stream(mixed: Any, straight: list[Any]) -> None:
    batches = made(mixed)
    first, second = iter(batches), iter(batches)
    turns = [next(each) for _ in range(4) for each in (first, second)]
    assert flat(turns) == straight[:48]


# functions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_functions_get_samples_or_pairs(datasets: dict[str, Any], straight: list[Any], num_workers: int) -> None:
    named = mixture(datasets)
    transformed = made(named, sample_transform_fn=loading.with_its_length, collate_fn=None, num_workers=num_workers)
    names, rows, lengths = next(iter(transformed))
    assert list(zip(names, rows.tolist(), strict=True)) == straight[:6] and lengths.dtype == torch.int64
    bare = made(mixture(datasets, names=False), collate_fn=subject.ids, num_workers=num_workers)
    assert next(iter(bare)) == [row for _, row in straight[:6]]


@pytest.mark.parametrize("collate", [loading.same, loading.same_pairs_after_a_look, tuple])
@pytest.mark.parametrize("world_size", [1, 2])
def test_batches_of_stored_samples_travel_as_references(mixed: Any, straight: list[Any], world_size: int, collate: Any) -> None:
    loaders = ranks(mixed, world_size, batch_size=6 // world_size, num_workers=2, collate_fn=collate)
    passes = [[named_rows(batch) for batch in steps(loaders)] for _ in range(2)]
    assert flat(flat(passes)) == straight[:108]
    assert all(each.dataset.parent._last[-1].streams for each in loaders), "they were read here"


def test_functions_that_processes_cannot_be_given_are_refused(mixed: Any) -> None:
    with pytest.raises(TypeError, match="sample_transform_fn cannot be handed to loading processes"):
        made(mixed, num_workers=1, sample_transform_fn=lambda pair: pair)
    with pytest.raises(TypeError, match="collate_fn cannot be handed to loading processes"):
        made(mixed, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="spawn")
    assert len(list(made(mixed, sample_transform_fn=lambda pair: pair))) == 9
    batches = made(mixed)
    for copying in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="to_torch_dataloader in each process"):
            copying(batches)


# errors -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be 1 to"),
        ({"batch_size": True}, "batch_size must be an integer"),
        ({"num_workers": -1}, "num_workers must be 0 to"),
        ({"samples_per_epoch": 0}, "samples_per_epoch .* must be 1 to"),
        ({"timeout": 1}, "timeout is for loading processes"),
        ({"prefetch_factor": 2}, "prefetch_factor is for loading processes"),
        ({"persistent_workers": True}, "persistent_workers is for loading processes"),
        ({"multiprocessing_context": "thread"}, "multiprocessing_context must be one of"),
        ({"drop_last": 1}, "drop_last must be True or False"),
        ({"collate_fn": 1}, "collate_fn must be callable"),
        ({"dataloader_kwargs": {"in_order": False}}, "dataloader_kwargs cannot have in_order=False"),
        ({"dataloader_kwargs": {"sampler": None}}, "dataloader_kwargs cannot hold 'sampler'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(mixed: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=words) as caught:
        made(mixed, **options)
    assert caught.value.kind == "invalid-argument"


@pytest.mark.parametrize("name", ["shuffle", "order", "seed", "worker_partition", "work_dir", "verbose", "native_num_workers"])
def test_what_is_the_mixtures_to_say_is_not_taken(mixed: Any, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        made(mixed, **{name: None})


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_exception_in_place_of_a_batch_costs_that_batch(mixed: Any, straight: list[Any], num_workers: int) -> None:
    bad = straight.index(("b", 3)) // 6
    options = {"num_workers": num_workers, "sample_transform_fn": loading.refuses_the_third_of_b}
    batches = made(mixed, **options)
    passing = iter(batches)
    assert flat(next(passing) for _ in range(bad)) == straight[: 6 * bad]
    with pytest.raises(KeyError, match="the third is refused"):
        next(passing)
    state = saved(batches)
    assert state["position"] == 6 * (bad + 1)
    other = made(mixed, **options)
    other.load_state_dict(state)
    after = straight[6 * (bad + 1) : 6 * (bad + 2)]
    assert ("b", 3) not in after
    assert next(iter(other)) == next(passing) == after


def test_samples_that_cannot_be_read_cost_their_batch_however_they_are_read(base: Path) -> None:
    good = subject.open_dataset(subject.write(base, "good", big_rows(6, 300)))
    path = subject.write(base, "bad", big_rows(6, 300))
    file, start, _ = damage.place(path, 3)
    damage.flip(file, start + 40)
    mixed = drt.mix({"good": good, "bad": subject.open_dataset(path)}, names=True)
    for options in ({"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2}):
        batches = iter(made(mixed, batch_size=2, **options))
        found: list[Any] = []
        while True:
            try:
                found.append([row for _, row in next(batches)])
            except drt.CorruptCacheError:
                found.append("damaged")
            except StopIteration:
                break
        assert found == [[0, 0], [1, 1], [2, 2], "damaged", [4, 4], [5, 5]]


def test_a_process_that_dies_costs_no_batch(mixed: Any) -> None:
    batches = made(mixed, num_workers=1)
    passing = iter(batches)
    next(passing)
    delivered = 1
    with pytest.raises(RuntimeError, match="DataLoader worker"):  # a signal may tell at once
        os.kill(passing._batches._workers[0].pid, signal.SIGKILL)
        for _ in passing:
            delivered += 1
    assert saved(batches)["delivered"] == delivered


def test_a_loaders_dataset_is_for_its_own_processes(mixed: Any) -> None:
    batches = made(mixed)
    other = torch.utils.data.DataLoader(batches.dataset, batch_size=6, num_workers=1, multiprocessing_context="fork")
    passing = iter(other)
    try:
        with pytest.raises(drt.InvalidInputError, match="use to_torch_iterable_dataset with a loader of your own"):
            next(passing)
    finally:  # the garbage collector would wait for seconds
        passing._shutdown_workers()


# going on ---------------------------------------------------------------------------------------------------------------------


@EACH_OF
@QUIET
def test_it_goes_on_behind_every_batch(mixed: Any, straight: list[Any], processes: dict[str, Any]) -> None:
    options = {"prefetch_factor": 3, **processes} if processes["num_workers"] else processes
    running, resumed = made(mixed, samples_per_epoch=20, **options), made(mixed, samples_per_epoch=20, **options)
    delivered = 0
    for _ in range(2 if processes.get("persistent_workers", True) else 1):  # starting processes takes its time
        states = [saved(running)]
        passing = iter(running)
        assert saved(running) == states[0], "what processes have ready does not count"
        for _ in passing:
            states.append(saved(running))
        for state in states:
            assert (state["position"], state["pass"], state["delivered"]) == (6 * delivered, *divmod(delivered, 4))
            resumed.load_state_dict(state)
            assert saved(resumed) == state
            rest = list(resumed)
            assert len(rest) == 4 - state["delivered"], "what is left of the pass"
            assert flat([*rest, *itertools.islice(resumed, 1)]) == straight[6 * delivered :][: 6 * (len(rest) + 1)]
            delivered += 1
        delivered -= 1


def test_it_goes_on_with_other_ranks_and_processes(mixed: Any, straight: list[Any]) -> None:
    first = ranks(mixed, 2, batch_size=6, num_workers=2)
    had = steps(first, 3)
    state = saved(first[0])
    assert saved(first[1]) == state, "states say nothing of the rank"
    assert [state[key] for key in ("ranks", "batch_size", "samples", "pass", "delivered", "position")] == [2, 6, 50, 0, 3, 36]
    for world_size, batch_size, num_workers in ((4, 3, 1), (1, 12, 0), (4, 6, 0)):
        loaders = ranks(mixed, world_size, batch_size=batch_size, num_workers=num_workers)
        for each in loaders:
            each.load_state_dict(state)
        rest, after = steps(loaders), steps(loaders)
        assert flat(had + rest + after) == straight[: 60 + len(flat(after))]
        assert (len(flat(rest)), len(after)) == (24, len(loaders[0])), "what is left of the pass, and a whole one"
    other = made(mixed, batch_size=5)
    with pytest.raises(drt.StateMismatchError, match="24 samples are left of the pass, which are no whole steps of 5"):
        other.load_state_dict(state)
    assert next(iter(other)) == straight[:5]
    other.load_state_dict(state, strict=False)
    assert flat(other) == straight[36:61]


@pytest.mark.parametrize("persistent_workers", [True, False])
def test_processes_that_are_alive_follow_a_state(mixed: Any, straight: list[Any], persistent_workers: bool) -> None:
    batches = made(mixed, num_workers=2, persistent_workers=persistent_workers)
    passing = iter(batches)
    list(itertools.islice(passing, 3))
    state = saved(batches)
    list(passing)
    for _ in range(2):
        batches.load_state_dict(state)
        assert flat(batches) == straight[18:54]
        assert flat(batches) == straight[54:108]


def test_the_state_has_room_for_eight_components(datasets: dict[str, Any]) -> None:
    one, other = datasets.values()
    many = drt.mix({f"component {number}": one if number % 2 else other for number in range(8)}, seed=2**64 - 1)
    many.load_state_dict({**many.state_dict(), "position": 2**60})
    state = saved(many.to_torch_dataloader(num_workers=0, batch_size=1000))
    assert state["mixture"] == many.state_dict()["mixture"]


def test_a_state_of_another_mixture_or_length_is_refused_and_changes_nothing(datasets: dict[str, Any], mixed: Any) -> None:
    batches = made(mixed)
    list(itertools.islice(batches, 2))
    state = saved(batches)
    for other, options, words in (
        (mixture(datasets, seed=5), {}, "the seed of the mixture is 5 here and was 4"),
        (mixture(datasets, weights={"a": 1, "b": 2}), {}, "of 'a' the weight is 1.0 here and was 0.75"),
        (mixture(dict(reversed(datasets.items()))), {}, r"the components are \['b', 'a'\] here and were \['a', 'b'\]"),
        (mixture({**datasets, "b": datasets["a"]}), {}, "of 'b' the caches differ"),
        (mixed, {"samples_per_epoch": 48}, "the number of samples of a pass is 48 here and was 50"),
        (mixture(datasets, None), {}, "the number of samples of a pass is without an end here and was 50"),
    ):
        second = made(other, **options)
        before = saved(second)
        with pytest.raises(drt.StateMismatchError, match=words) as caught:
            second.load_state_dict(state)
        assert caught.value.kind == "state-mismatch"
        assert saved(second) == before
        second.load_state_dict(state, strict=False)
        assert saved(second)["position"] == 12
        next(iter(second))
        assert saved(second)["position"] == 18
    endless = saved(made(mixture(datasets, None)))
    with pytest.raises(drt.StateMismatchError, match="is 50 here and was without an end"):
        batches.load_state_dict(endless)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "dataset-rt/loader-state"), ("mixture", None), ("mixture", {}), ("mixture", {"components": [1]}),
        ("samples", 0), ("samples", "50"), ("batch_size", 0), ("drop_last", 1), ("ranks", None), ("pass", -1),
        ("delivered", 9), ("delivered", True), ("position", "0"), ("position", 2**62),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_state_is_refused(mixed: Any, name: str, value: Any) -> None:
    batches = made(mixed)
    state = saved(batches)
    for damaged in ({**state, name: value}, {key: each for key, each in state.items() if key != name}):
        with pytest.raises(drt.InvalidInputError, match="no state of a loader"):
            batches.load_state_dict(damaged, strict=False)
    assert saved(batches) == state


def test_states_of_other_versions_and_things_are_refused(datasets: dict[str, Any], mixed: Any) -> None:
    batches = made(mixed)
    with pytest.raises(drt.StateMismatchError, match="version 2, and this release reads version 1"):
        batches.load_state_dict({**saved(batches), "version": 2})
    dataset_loader = loading.loader(datasets["a"], worker_partition="stream")
    for thing in (None, [], mixed.state_dict(), saved(dataset_loader)):
        with pytest.raises(drt.InvalidInputError, match="no state of a loader"):
            batches.load_state_dict(thing)
    with pytest.raises(drt.InvalidInputError, match="no state of a loader"):
        dataset_loader.load_state_dict(saved(batches))


def test_loaders_have_the_names_that_trainers_ask_for(mixed: Any) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader.stateful", reason="needs torchdata")
    assert isinstance(made(mixed), stateful.Stateful)
    assert isinstance(made(mixed), torch.utils.data.DataLoader)


def test_nothing_stays_on_the_disk(mixed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batches = mixed.to_torch_dataloader(batch_size=6, num_workers=1, collate_fn=named_rows, multiprocessing_context="fork")
    list(batches)
    assert len(list(tmp_path.glob("dataset-rt-*"))) == 1
    batches._iterator._shutdown_workers()
    del batches
    assert list(tmp_path.glob("dataset-rt-*")) == []


# a process group --------------------------------------------------------------------------------------------------------------

RANKS = """
import itertools, json, pathlib, sys
import torch
import torch.distributed as dist
import dataset_rt as drt
from support import loading

paths, folder = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])

def train(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    datasets = {
        name: drt.DatasetRuntime(num_workers=1).cached_dataset([path], reader_config=drt.ReaderConfig(seed=seed, order=order))
        for name, (path, seed, order) in paths.items()
    }
    mixed = drt.mix(datasets, weights={"a": 0.75, "b": 0.25}, seed=4, names=True)
    mixed.set_epoch_len(50)
    options = {"batch_size": 6, "num_workers": 2, "collate_fn": loading.named_rows, "multiprocessing_context": "fork"}
    batches = mixed.to_torch_dataloader(**options)
    said = {"length": len(batches), "batches": list(itertools.islice(batches, 3)), "state": batches.state_dict()}
    if rank:
        list(itertools.islice(mixed, 1))
    try:
        mixed.to_torch_dataloader(**options)
    except ValueError as error:
        said["refused"] = str(error)
    dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(said))
    batches._iterator._shutdown_workers()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, nprocs=2, start_method="fork")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs a gloo group")
def test_ranks_are_those_of_the_process_group(datasets: dict[str, Any], straight: list[Any], tmp_path: Path) -> None:
    paths = {
        name: (str(dataset.cache_paths[0]), dataset.reader_config.seed, dataset.reader_config.order)
        for name, dataset in datasets.items()
    }
    done = run_program(tmp_path / "program.py", RANKS, json.dumps(paths), str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    had = [list(map(tuple, itertools.chain(*step))) for step in zip(*(rank["batches"] for rank in said), strict=True)]
    assert flat(had) == straight[:36]
    assert [rank["length"] for rank in said] == [5, 5]
    assert said[0]["state"] == said[1]["state"]
    assert all("different positions of the mixture (0 on rank 0, 50 on rank 1)" in rank["refused"] for rank in said)
    loaders = ranks(mixture(datasets), 4, batch_size=3, num_workers=1)
    for each in loaders:
        each.load_state_dict(said[0]["state"])
    assert flat(steps(loaders) + steps(loaders)) == straight[36:120]
