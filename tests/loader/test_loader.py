"""Loaders that load in the training process."""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import os
import pickle
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import polars as pl
from dataset_rt import CachedDataset, CachedSample, ForkedProcessError, InvalidInputError
from support import drt, sources
from support.child import run_script
from support.loading import end_processes, flat, loader, numbers, same, text
from torch.utils.data import DataLoader, IterableDataset

pytestmark = pytest.mark.ours

LOADER_READY = """
event pid rank seed worker_seeds num_workers native_threads_per_consumer partition persistent prefetch_factor native_prefetch
samples samples_per_rank batch_size world_size shuffle multiprocessing_context
"""


@pytest.fixture
def ten(base: Path) -> Any:
    """Ten rows, numbered by `i`."""
    return drt.open_dataset(drt.write(base, "ten", sources.ten_rows()))


@pytest.fixture
def hundred(base: Path) -> Any:
    return drt.open_dataset(drt.write(base, "hundred", sources.mini(100)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 3}, ["012 345 678 9", "012 345 678 9"]),
        ({"batch_size": 3, "drop_last": True}, ["012 345 678", "901 234 567"]),
        ({"batch_size": 2, "samples_per_epoch": 4}, ["01 23", "45 67", "89 01", "23 45"]),
        ({"batch_size": 8, "samples_per_epoch": 23}, ["01234567 89012345 6789012", "34567890 12345678 9012345"]),
    ],
)
def test_passes_in_table_order_go_on_where_the_last_one_ended(ten: Any, options: dict[str, Any], expected: list[str]) -> None:
    batches = loader(ten, **options)
    assert [text(batches) for _ in expected] == expected
    assert len(batches) == len(expected[0].split())


def test_a_loader_is_a_torch_dataloader(ten: Any) -> None:
    batches = loader(ten, batch_size=4)
    assert isinstance(batches, DataLoader)
    assert isinstance(batches.dataset, IterableDataset)
    assert (batches.batch_size, batches.num_workers, batches.drop_last, len(batches)) == (4, 0, False, 3)
    assert (len(batches.dataset), batches.collate_fn) == (10, numbers)
    assert len(iter(batches)) == 3


def test_samples_are_those_that_were_written(hundred: Any) -> None:
    samples = flat(loader(hundred, batch_size=7, collate_fn=same))
    assert all(type(sample) is CachedSample for sample in samples)
    assert [(sample.data, sample.metadata) for sample in samples] == sources.mini(100)


def test_collate_functions_get_lists_also_of_one(ten: Any) -> None:
    seen: list[Any] = []
    for _ in loader(ten, batch_size=1, collate_fn=seen.append):
        pass
    assert all(type(batch) is list and len(batch) == 1 for batch in seen)
    assert list(loader(ten, sample_transform_fn=lambda sample: sample.metadata["i"], collate_fn=same, batch_size=4)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_torch_collates_where_no_function_is_given(ten: Any) -> None:
    first = next(iter(loader(ten, batch_size=3, collate_fn=None)))
    assert type(first) is CachedSample
    assert list(first.data) == [b"p0", b"p1", b"p2"]
    assert first.metadata["i"].tolist() == first.sample_id.tolist() == [0, 1, 2]
    transformed = loader(ten, batch_size=3, collate_fn=None, sample_transform_fn=lambda sample: torch.tensor([1.0]))
    assert next(iter(transformed)).shape == (3, 1)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 100])
def test_the_length_is_the_number_of_batches(base: Path, rows: int) -> None:
    dataset = drt.open_dataset(drt.write(base, "mini", sources.mini(rows)))
    for batch_size in (1, 4, 8):
        for drop_last in (False, True):
            batches = loader(dataset, batch_size=batch_size, drop_last=drop_last)
            sizes = [len(batch) for batch in batches]
            assert len(sizes) == len(batches) == (rows // batch_size if drop_last else -(-rows // batch_size))
            assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
            assert not drop_last or set(sizes) <= {batch_size}


def test_a_seed_repeats_and_passes_differ(hundred: Any) -> None:
    first, second = (loader(hundred, batch_size=10, shuffle=True, seed=5) for _ in range(2))
    runs = [[flat(batches) for _ in range(2)] for batches in (first, second)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    assert flat(loader(hundred, batch_size=10, shuffle=True, seed=6)) != runs[0][0]


def test_random_seeds_differ_between_loaders(hundred: Any) -> None:
    one, other = (flat(loader(hundred, batch_size=10, shuffle=True)) for _ in range(2))
    assert one != other


def test_rows_are_drawn_by_weight(hundred: Any) -> None:
    table = hundred.get_metadata()
    hundred.update_metadata(table.with_columns(weight=pl.when(pl.col("cls") == 1).then(3.0).otherwise(1.0)))
    for partition in ("replicate", "split"):
        drawn = flat(loader(hundred, batch_size=64, shuffle=True, seed=1, samples_per_epoch=20_000, worker_partition=partition))
        share = sum(number % 3 == 1 for number in drawn) / len(drawn)
        assert abs(share - 99 / 166 * 1.0) < 0.02  # 33 rows of weight 3, 67 of weight 1; 0.0035 is one standard deviation
        assert set(drawn) == set(range(100))


def test_a_pass_that_was_given_up_is_gone_on_with(ten: Any) -> None:
    batches = loader(ten, batch_size=2)
    assert text(list(itertools.islice(batches, 2))) == "01 23"
    assert text(batches) == "45 67 89 01 23"


def test_two_passes_at_once_share_the_stream(ten: Any) -> None:
    batches = loader(ten, batch_size=2)
    one, other = iter(batches), iter(batches)
    assert text([next(one), next(other), next(other), next(one)]) == "01 23 45 67"


def test_threads_share_the_stream_without_loss(hundred: Any) -> None:
    batches, seen = loader(hundred, batch_size=5), Counter[int]()
    lock = threading.Lock()

    def consume() -> None:
        drawn = flat(batches)
        with lock:
            seen.update(drawn)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == Counter(dict.fromkeys(range(100), 4))


def test_an_exception_of_a_function_is_the_callers_own_and_the_pass_can_go_on(ten: Any) -> None:
    def refuse(sample: Any) -> int:
        if sample.metadata["i"] == 5:
            raise KeyError("five")
        return sample.metadata["i"]

    batches = iter(loader(ten, batch_size=2, sample_transform_fn=refuse, collate_fn=same))
    assert [next(batches), next(batches)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="five"):
        next(batches)
    assert list(batches) == [[6, 7], [8, 9]]


def test_a_batch_that_cannot_be_read_is_an_error_and_the_next_pass_goes_on_behind_it(base: Path) -> None:
    path = drt.write(base, "broken", sources.big_rows(8, 1000), max_shard_bytes=2000)
    shard = sorted((path / "shards").glob("*"))[2]
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 4] ^= 1
    shard.write_bytes(bytes(damaged))
    batches = loader(drt.open_dataset(path), batch_size=2)
    passing = iter(batches)
    assert next(passing) == [0, 1]
    with pytest.raises(drt.Corrupt):
        next(passing)
    assert next(iter(batches)) == [4, 5]


def test_a_loader_is_a_snapshot_and_says_so(ten: Any) -> None:
    batches = loader(ten, batch_size=2)
    next(iter(ten))
    assert text(batches) == "01 23 45 67 89"
    ten.set_epoch_len(3)
    ten.update_metadata(ten.get_metadata()[[9, 8, 7]])
    with pytest.warns(UserWarning, match="refresh"):
        assert text(batches) == "01 23 45 67 89"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert text(batches) == "01 23 45 67 89"


def test_refreshing_begins_a_new_stream_with_the_next_pass(ten: Any) -> None:
    batches = loader(ten, batch_size=2)
    running = iter(batches)
    assert next(running) == [0, 1]
    ten.update_metadata(ten.get_metadata()[[9, 8, 7]])
    batches.refresh(ten)
    assert text(running) == "23 45 67 89"
    assert len(batches) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [text(batches), text(batches)] == ["98 7", "98 7"]


def test_refreshing_keeps_a_number_of_samples_that_was_given(ten: Any) -> None:
    batches = loader(ten, batch_size=2, samples_per_epoch=4)
    assert text(batches) == "01 23"
    ten.update_metadata(ten.get_metadata()[[9, 8, 7]])
    batches.refresh(ten)
    assert [text(batches), text(batches)] == ["98 79", "87 98"]


def test_refreshing_with_something_else_changes_nothing(ten: Any, base: Path) -> None:
    batches = loader(ten, batch_size=5)
    other = drt.open_dataset(drt.write(base, "other", sources.ten_rows(3)))
    with pytest.raises(InvalidInputError, match="other"):
        batches.refresh(other)
    with pytest.raises(TypeError, match="DataFrame"):
        batches.refresh(ten.get_metadata())
    assert text(batches) == "01234 56789"


def test_loaders_are_not_copied(ten: Any) -> None:
    batches = loader(ten, batch_size=5)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"to_torch_dataloader in each process.*state_dict"):
            way(batches)
    assert text(batches) == "01234 56789"


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2, "multiprocessing_context": "fork"}])
def test_a_loaders_dataset_is_for_its_own_processes(ten: Any, options: dict[str, Any]) -> None:
    batches = loader(ten, batch_size=5, **options)
    sent = pickle.loads(pickle.dumps(batches.dataset))
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="to_torch_map_dataset"):
            next(iter(sent))
    for other in (1, 3):
        passing = iter(DataLoader(batches.dataset, collate_fn=same, num_workers=other, multiprocessing_context="fork"))
        with pytest.raises(InvalidInputError, match="to_torch_map_dataset"):
            next(passing)
        passing._shutdown_workers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("used", [False, True])
def test_a_forked_child_is_told_to_spawn(ten: Any, used: bool) -> None:
    batches = loader(ten, batch_size=5)
    if used:
        assert text(batches) == "01234 56789"
    child = os.fork()
    if not child:
        try:
            list(batches)
        except ForkedProcessError as error:
            os._exit(7 if "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def stops_at_five(value: Any) -> Any:
    if value.metadata["i"] == 5:
        raise StopIteration
    return value.metadata["i"]


def stops_with_five(batch: list[Any]) -> Any:
    return [stops_at_five(sample) for sample in batch]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 0, "pin_memory": True},
        {"num_workers": 2, "multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "fork", "persistent_workers": False},
    ],
)
@pytest.mark.parametrize(
    "functions",
    [{"sample_transform_fn": stops_at_five, "collate_fn": same}, {"collate_fn": stops_with_five}],
    ids=["transform", "collate"],
)
@pytest.mark.filterwarnings("ignore:.*(pin|accelerator)")
def test_a_function_that_ends_an_iteration_costs_its_batch_and_says_so(
    ten: Any, options: dict[str, Any], functions: dict[str, Any]
) -> None:
    passing = iter(loader(ten, batch_size=2, worker_partition="stream", **functions, **options))
    found: list[Any] = []
    while True:
        try:
            found.append(next(passing))
        except RuntimeError as error:
            assert "StopIteration" in str(error) and next(iter(functions)) in str(error)
            found.append(None)
        except StopIteration:
            break
    end_processes()
    assert found == [[0, 1], [2, 3], None, [6, 7], [8, 9]]


def test_a_map_style_transform_that_ends_an_iteration_is_an_error(ten: Any) -> None:
    rows = ten.to_torch_map_dataset(transform=stops_at_five)
    assert rows.__getitems__([3, 4]) == [3, 4]
    for read in (lambda: rows[5], lambda: rows.__getitems__([4, 5, 6])):
        with pytest.raises(RuntimeError, match="transform raised StopIteration"):
            read()


def test_threads_may_share_a_pass(base: Path) -> None:
    dataset = drt.open_dataset(drt.write(base, "many", sources.mini(500)))
    batches = loader(dataset, batch_size=1)
    for _ in range(10):
        passing, seen = iter(batches), []

        def take(passing: Any = passing, seen: list[int] = seen) -> None:
            seen.extend(flat(passing))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(500))
        assert batches.state_dict()["delivered"] == 0


@pytest.mark.parametrize("partition", ["split", "stream"])
def test_processes_that_cannot_begin_deliver_no_more_than_a_pass_has(ten: Any, partition: str) -> None:
    batches = loader(
        ten, batch_size=2, num_workers=2, multiprocessing_context="fork", worker_init_fn=_refuses, worker_partition=partition
    )
    passing = iter(batches)
    for _ in range(9):
        with contextlib.suppress(Exception):
            next(passing)
    end_processes()
    state = batches.state_dict()
    assert (state["pass"], state["delivered"]) in {(0, delivered) for delivered in range(5)} | {(1, 0)}


def _refuses(_worker: int) -> None:
    raise OSError("this process cannot begin")


def test_pinning_goes_through_torch_and_gives_the_same(ten: Any) -> None:
    batches = loader(ten, batch_size=4, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [text(batches), text(batches)] == ["0123 4567 89", "0123 4567 89"]
    assert batches.pin_memory is True


def test_a_work_folder_keeps_an_export(ten: Any, tmp_path: Path) -> None:
    ten.update_metadata(ten.get_metadata()[[3, 1]])
    loader(ten, work_dir=tmp_path)
    loader(ten, work_dir=tmp_path)
    kept = [entry for entry in tmp_path.iterdir() if entry.name.startswith("dataset-rt-")]
    assert len(kept) == 2
    for folder in kept:
        assert drt.ids(CachedDataset.from_config(folder / "dataset.json")) == [3, 1]


def test_nothing_is_written_without_processes_and_work_folder(ten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: pytest.fail("a folder was made"))
    assert text(loader(ten, batch_size=5)) == "01234 56789"


def test_options_of_torch_are_passed_on_and_unknown_ones_leave_nothing(ten: Any, tmp_path: Path) -> None:
    generator = torch.Generator()
    assert loader(ten, dataloader_kwargs={"generator": generator}).generator is generator
    with pytest.raises(TypeError, match="surprise"):
        loader(ten, work_dir=tmp_path, dataloader_kwargs={"surprise": 1})
    assert [entry for entry in tmp_path.iterdir() if entry.name.startswith("dataset-rt-")] == []


def test_loading_does_not_touch_torchs_random_numbers(ten: Any) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    list(loader(ten, batch_size=3, shuffle=True))
    assert torch.rand(3).tolist() == expected


def test_what_the_loader_does_is_logged(ten: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dataset_rt.loader"):
        batches = loader(ten, batch_size=4, shuffle=True, seed=3, verbose=True)
        assert len(caplog.messages) == 1
        list(batches)
        list(batches)
        quiet = loader(ten)
        list(quiet)
    lines = [dict(part.split("=", 1) for part in line.split()) for line in caplog.messages]
    assert [line["event"] for line in lines] == ["loader_ready", "reader_started", "reader_pass", "reader_pass"]
    assert list(lines[0]) == LOADER_READY.split()
    assert (lines[0]["seed"], lines[0]["worker_seeds"], lines[0]["partition"]) == ("3", "3571654488517972352", "replicate")
    assert (lines[1]["worker"], lines[1]["seed"], lines[1]["population"]) == ("main", "3571654488517972352", "10")
    assert [line["sampling_reset"] for line in lines[1:]] == ["True", "True", "False"]


def test_ranks_get_equal_numbers_and_the_first_one_warns(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataset_rt._torch import distributed

    dataset = drt.open_dataset(drt.write(base, "thousand", sources.ten_rows(1000)))
    for drop_last, samples, length, effective in ((False, 334, 11, 1002), (True, 320, 10, 960)):
        told: list[str] = []
        for rank in range(3):
            monkeypatch.setattr(distributed, "world", lambda rank=rank: distributed.World(3, rank))
            # Real ranks, in test_distributed.py, hear of each other; these three have the same to say.
            monkeypatch.setattr(distributed, "from_all", lambda value, size: [value] * size)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                batches = dataset.to_torch_dataloader(
                    batch_size=32, shuffle=False, num_workers=0, drop_last=drop_last, collate_fn=numbers, verbose=False
                )
            told += [str(warning.message) for warning in caught]
            drawn = flat(batches)
            assert (len(drawn), len(batches)) == (samples, length)
            assert drawn == [number % 1000 for number in range(rank * samples, (rank + 1) * samples)]
        assert len(told) == 1
        assert "1000" in told[0] and str(effective) in told[0]


def test_a_process_alone_computes_nothing_to_compare() -> None:
    from dataset_rt._torch.distributed import World, agreed

    assert agreed(World(1, 0), {}, {"tables": lambda: pytest.fail("digests of a large table take long")}, 7) == 7


class OfAnotherDivider(IterableDataset):
    """What trainers that divide an iterable dataset among ranks put around it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return itertools.islice(iter(self.dataset), 0, None, 2)


def test_whoever_divides_a_ranks_samples_once_more_is_told(ten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataset_rt._torch import distributed

    monkeypatch.setattr(distributed, "from_all", lambda value, size: [value] * size)
    one = loader(ten, batch_size=5)
    monkeypatch.setattr(distributed, "world", lambda: distributed.World(2, 1))
    two, forked = (loader(ten, batch_size=5, num_workers=count, multiprocessing_context="fork") for count in (0, 1))
    with pytest.warns(UserWarning, match=r"rank 1 of 2 .*to_torch_map_dataset"):
        list(DataLoader(OfAnotherDivider(two.dataset), batch_size=2, collate_fn=numbers))
    taken_apart = {"worker_init_fn": forked.worker_init_fn, "num_workers": 1, "multiprocessing_context": "fork"}
    passing = iter(DataLoader(OfAnotherDivider(forked.dataset), collate_fn=numbers, **taken_apart))
    with pytest.raises(InvalidInputError, match=r"OfAnotherDivider.*to_torch_map_dataset"):
        next(passing)
    passing._shutdown_workers()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert text(DataLoader(one.dataset, batch_size=5, collate_fn=numbers)) == "01234 56789"
        assert [text(two), text(forked), text(forked)] == ["56789"] * 3
    end_processes()  # what an exception keeps, the garbage collector ends slowly


def test_dropping_is_told_also_on_one_rank(ten: Any) -> None:
    with pytest.warns(UserWarning, match=r"10 .* 9 "):
        ten.to_torch_dataloader(batch_size=3, shuffle=False, num_workers=0, drop_last=True, verbose=False)


def test_the_iterable_dataset_takes_windows_of_the_dataset(ten: Any) -> None:
    view = ten.to_torch_iterable_dataset()
    assert isinstance(view, IterableDataset)
    assert len(view) == 10
    ten.set_epoch_len(4)
    assert len(view) == 4
    assert drt.ids(DataLoader(view, batch_size=None)) == [0, 1, 2, 3]
    assert drt.ids(ten) == [4, 5, 6, 7]
    assert list(DataLoader(view, batch_size=2, collate_fn=numbers)) == [[8, 9], [0, 1]]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(view)


def test_the_iterable_dataset_refuses_to_be_multiplied(ten: Any) -> None:
    with pytest.raises(RuntimeError, match="to_torch_dataloader"):
        next(iter(DataLoader(ten.to_torch_iterable_dataset(), batch_size=None, num_workers=1, multiprocessing_context="fork")))


def test_without_torch_the_error_says_what_to_install(ten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"):
        ten.to_torch_iterable_dataset()
    with pytest.raises(ModuleNotFoundError, match="pip install torch"):
        ten.to_torch_dataloader()


def test_importing_the_package_does_not_load_torch(base: Path) -> None:
    path = drt.write(base, "ten", sources.ten_rows())
    body = """
import dataset_rt
from support import drt
list(drt.open_dataset(ARGS["path"]))
report(sorted({"torch", "numpy"} & sys.modules.keys()))
"""
    assert run_script(body, {"path": str(path)}) == []


def test_the_number_of_native_threads_is_what_was_asked_for(ten: Any) -> None:
    def threads() -> set[str]:
        return {task.name for task in Path("/proc/self/task").iterdir()}

    before = threads()
    batches = loader(ten, batch_size=5, native_num_workers=7)
    after = threads()
    assert len(after - before) == 7
    assert text(batches) == "01234 56789"
    same_threads = loader(ten, batch_size=5, native_num_workers=2)
    assert threads() <= after
    assert text(same_threads) == "01234 56789"
