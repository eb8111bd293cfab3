"""Loaders with loading processes. Most are forked, which takes no time; how they start changes nothing else."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import polars as pl
from dataset_rt import CachedSample
from support import drt, loading, sources
from support.child import run_program
from support.loading import flat, forked, text

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks at /proc")]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, where loaders must leave nothing."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    yield
    loading.end_processes()


def ours(folder: Path) -> list[str]:
    """What loaders left there; torch and multiprocessing have things of their own."""
    return [entry.name for entry in folder.iterdir() if entry.name.startswith("dataset-rt-")]


@pytest.fixture
def ten(base: Path) -> Any:
    return drt.open_dataset(drt.write(base, "ten", sources.ten_rows()))


def mini(base: Path, rows: int) -> Any:
    return drt.open_dataset(drt.write(base, f"mini-{rows}", sources.mini(rows)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 2}, ["01 67 23 89 45", "01 67 23 89 45"]),
        ({"batch_size": 2, "worker_partition": "replicate"}, ["01 01 23 23 45", "67 45 89 67 01"]),
        ({"batch_size": 1, "samples_per_epoch": 6}, ["0 5 1 6 2 7", "3 8 4 9 0 5"]),
        ({"batch_size": 3, "drop_last": True}, ["012 678 345", "901 678 234"]),
    ],
)
def test_processes_take_turns_and_their_streams_go_on(ten: Any, options: dict[str, Any], expected: list[str]) -> None:
    batches = forked(ten, **options)
    assert [text(batches) for _ in expected] == expected


@pytest.mark.parametrize("rows", [1, 9, 100])
def test_the_length_is_the_number_of_batches_for_any_number_of_processes(base: Path, rows: int) -> None:
    dataset = mini(base, rows)
    for num_workers, batch_size, drop_last in ((1, 4, False), (1, 4, True), (3, 1, False), (3, 8, True), (3, 4, False)):
        batches = forked(dataset, num_workers=num_workers, batch_size=batch_size, drop_last=drop_last)
        sizes = [len(batch) for batch in batches]
        assert len(sizes) == len(batches) == (rows // batch_size if drop_last else -(-rows // batch_size))
        assert sum(size < batch_size for size in sizes) == (0 if drop_last else int(rows % batch_size > 0))


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4, 5])
def test_nothing_comes_twice_and_nothing_is_lost(base: Path, num_workers: int) -> None:
    samples = flat(forked(mini(base, 103), num_workers=num_workers, batch_size=4, collate_fn=loading.same))
    found = sorted(samples, key=lambda sample: sample.metadata["i"])
    assert [(sample.data, sample.metadata) for sample in found] == sources.mini(103)


def test_more_processes_than_samples(base: Path) -> None:
    batches = forked(mini(base, 2), num_workers=8, batch_size=4)
    assert [list(batches), list(batches)] == [[[0, 1]], [[0, 1]]]


@pytest.mark.parametrize(
    ("collate", "expected"),
    [
        (loading.same, list),
        (list, list),
        (tuple, tuple),
        (loading.same_after_a_look, list),
        (loading.as_tuple, tuple),
    ],
)
def test_batches_of_stored_samples_travel_as_references(ten: Any, collate: Any, expected: type) -> None:
    # The training process reads them: what it reads with is taken away at the end, and then it cannot.
    batches = forked(ten, batch_size=3, collate_fn=collate)
    for _ in range(2):
        found = list(batches)
        assert {type(batch) for batch in found} == {expected}
        assert sorted(sample.metadata["i"] for batch in found for sample in batch) == list(range(10))
        assert {type(sample) for batch in found for sample in batch} == {CachedSample}
    batches.dataset.parent.read = lambda *place: (_ for _ in ()).throw(drt.Corrupt("taken away"))
    with pytest.raises(drt.Corrupt, match="taken away"):
        list(batches)


def test_only_functions_that_surely_change_nothing_are_not_called() -> None:
    from dataset_rt._torch.data import kept_as

    assert [kept_as(function) for function in (list, tuple, loading.same, lambda samples: samples)] == [list, tuple, list, list]

    def generator(batch: Any) -> Any:
        yield batch

    async def coroutine(batch: Any) -> Any:
        return batch

    others = [
        None, len, loading.same_after_a_look, loading.as_tuple, loading.backwards, generator, coroutine,
        lambda *samples: samples, lambda: [], lambda one, other: other, lambda batch, *, key=None: key,
    ]  # fmt: skip
    assert [kept_as(function) for function in others] == [None] * len(others)


def test_a_relative_path_is_of_where_the_dataset_was_opened(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = drt.write(base, "ten", sources.ten_rows())
    monkeypatch.chdir(path.parent)
    dataset = drt.open_dataset(Path(path.name))
    monkeypatch.chdir(tmp_path)
    batches = forked(dataset, batch_size=5)
    assert text(batches) == "01234 56789"
    batches.refresh(dataset)
    batches.refresh(drt.open_dataset(base / "." / ".." / base.name / path.relative_to(base)))
    assert text(batches) == "01234 56789"


@pytest.mark.parametrize("partition", ["split", "stream"])
def test_a_pass_outlives_any_number_of_refreshes(base: Path, temporary: Path, partition: str) -> None:
    dataset = mini(base, 40)
    table = dataset.get_metadata()
    batches = forked(dataset, batch_size=2, collate_fn=loading.same, persistent_workers=False, worker_partition=partition)
    expected = sorted(flat(map(loading.numbers, batches)))
    old = iter(batches)
    seen = loading.numbers(next(old))
    for rows in (6, 5, 4, 3):
        dataset.update_metadata(table[:rows])
        batches.refresh(dataset)
        later = iter(batches)
        assert max(loading.numbers(next(later))) < rows
    seen += flat(map(loading.numbers, old))
    assert sorted(seen) == expected == list(range(40))
    del old
    loading.end_processes()
    gc.collect()
    assert [len(list((temporary / name).glob("pass-*"))) for name in ours(temporary)] == [2]


def test_another_collate_function_gets_the_samples(ten: Any) -> None:
    batches = forked(ten, batch_size=2, collate_fn=loading.same, persistent_workers=False)
    stock = torch.utils.data.DataLoader(
        batches.dataset, batch_size=2, collate_fn=loading.numbers, num_workers=2, multiprocessing_context="fork"
    )
    assert text(stock) == "01 67 23 89 45"
    assert text(map(loading.numbers, batches)) == "01 67 23 89 45"
    batches.collate_fn = loading.numbers
    assert text(batches) == "01 67 23 89 45"


@pytest.mark.parametrize(
    ("collate", "expected"),
    [
        (loading.backwards, [2, 1, 0]),
        (loading.marked, [0.0, 1.0, 2.0]),
        (loading.first_only, [0]),
    ],
)
def test_what_a_collate_function_changes_arrives(ten: Any, collate: Any, expected: list[Any]) -> None:
    (batch, *_) = forked(ten, num_workers=1, batch_size=3, collate_fn=collate)
    found = [sample.metadata["i"] for sample in batch]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


def test_an_error_on_a_reference_costs_its_batch_only(ten: Any) -> None:
    batches = forked(ten, num_workers=1, batch_size=2, collate_fn=loading.same)
    parent, read = batches.dataset.parent, batches.dataset.parent.read

    def fails_once(since: int, worker: int, position: int, count: int) -> Any:
        if position == 4:
            raise OSError("gone")
        return read(since, worker, position, count)

    parent.read = fails_once
    passing = iter(batches)
    found: list[Any] = []
    while True:
        try:
            found.append(loading.numbers(next(passing)))
        except OSError as error:
            assert str(error) == "gone"
            found.append(None)
        except StopIteration:
            break
    assert found == [[0, 1], [2, 3], None, [6, 7], [8, 9]]


def test_a_transform_runs_in_the_processes_and_its_error_is_torchs(ten: Any) -> None:
    batches = forked(ten, num_workers=1, batch_size=5, sample_transform_fn=loading.refuses_five, collate_fn=loading.same)
    passing = iter(batches)
    assert next(passing) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="five is refused"):
        next(passing)


def test_a_pass_that_is_given_up_does_not_disturb_the_next(base: Path) -> None:
    dataset = mini(base, 40)
    batches = forked(dataset, batch_size=2)
    for _ in range(3):
        next(iter(batches))
    drawn = flat(batches)
    assert Counter(drawn) == Counter(range(40))


def test_processes_that_are_not_persistent_repeat_and_a_warning_says_so(ten: Any) -> None:
    with pytest.warns(UserWarning, match="persistent_workers"):
        batches = ten.to_torch_dataloader(
            batch_size=2, samples_per_epoch=4, shuffle=False, num_workers=1, multiprocessing_context="fork",
            persistent_workers=False, verbose=False, collate_fn=loading.with_process,
        )  # fmt: skip
    first, second = list(batches), list(batches)
    assert [numbers for _, numbers in first] == [numbers for _, numbers in second] == [[0, 1], [2, 3]]
    assert {pid for pid, _ in first}.isdisjoint(pid for pid, _ in second)


def test_shuffled_passes_differ_and_runs_repeat(base: Path) -> None:
    dataset = mini(base, 100)
    for partition in ("replicate", "split"):
        runs = []
        for _ in range(2):
            batches = forked(dataset, batch_size=10, shuffle=True, seed=9, worker_partition=partition)
            runs.append([flat(batches), flat(batches)])
        assert runs[0] == runs[1]
        assert runs[0][0] != runs[0][1]


def test_refreshing_reaches_processes_that_are_alive(base: Path, temporary: Path) -> None:
    dataset = mini(base, 90)
    batches = forked(dataset, batch_size=5, shuffle=True, seed=1, samples_per_epoch=400, collate_fn=loading.with_process)
    before = list(batches)
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=pl.when(pl.col("cls") == 1).then(1.0).otherwise(1e-9)))
    batches.refresh(dataset)
    after = list(batches)
    assert {pid for pid, _ in before} == {pid for pid, _ in after}
    assert len({pid for pid, _ in after}) == 2
    drawn = flat(numbers for _, numbers in after)
    assert sum(number % 3 == 1 for number in drawn) >= 399
    assert sum(number % 3 == 1 for number in flat(numbers for _, numbers in before)) < 200
    for weight_of in (0, 2, 0, 2):
        dataset.update_metadata(table.filter(pl.col("cls") == weight_of))
        batches.refresh(dataset)
        assert {number % 3 for number in flat(numbers for _, numbers in batches)} == {weight_of}
    (folder,) = ours(temporary)
    assert len([name for name in os.listdir(temporary / folder) if name.startswith("pass-")]) == 2


def test_references_follow_a_refreshed_table(base: Path) -> None:
    dataset = mini(base, 30)
    batches = forked(dataset, batch_size=4, collate_fn=loading.same)
    next(iter(batches))
    dataset.update_metadata(dataset.get_metadata()[20:])
    batches.refresh(dataset)
    assert len(batches) == 3
    assert sorted(loading.numbers(flat(batches))) == list(range(20, 30))
    dataset.update_metadata(dataset.get_metadata()[:3])
    batches.refresh(dataset)
    batches.refresh(dataset)
    assert sorted(loading.numbers(flat(batches))) == [20, 21, 22]


def test_the_temporary_folder_goes_with_the_loader_and_its_passes(ten: Any, temporary: Path) -> None:
    batches = forked(ten, batch_size=2)
    passing = iter(batches)
    next(passing)
    assert len(ours(temporary)) == 1
    del batches
    gc.collect()
    assert len(ours(temporary)) == 1
    assert len(list(passing)) == 4
    del passing
    gc.collect()
    assert ours(temporary) == []


def test_a_work_folder_keeps_everything(ten: Any, tmp_path: Path, temporary: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    batches = forked(ten, batch_size=5, work_dir=work)
    list(batches)
    del batches
    gc.collect()
    (folder,) = ours(work)
    assert (work / folder / "dataset.json").is_file()
    assert ours(temporary) == []


def test_what_is_handed_to_processes_does_not_grow_with_the_table(base: Path) -> None:
    dataset = mini(base, 1000)
    small = len(pickle.dumps(forked(dataset).dataset))
    dataset.update_metadata(pl.concat([dataset.get_metadata()] * 1000))
    large = len(pickle.dumps(forked(dataset).dataset))
    assert small < 64 * 1024
    assert abs(large - small) < 1024


def test_caches_that_are_gone_are_an_error_of_the_first_batch(base: Path) -> None:
    dataset = mini(base, 10)
    batches = forked(dataset, batch_size=2)
    shutil.rmtree(dataset.cache_paths[0])
    with pytest.raises((ValueError, RuntimeError), match="mini-10"):
        next(iter(batches))


def test_a_killed_process_is_torchs_error_and_leaves_nothing(base: Path, temporary: Path) -> None:
    batches = forked(mini(base, 1000), batch_size=2, collate_fn=loading.with_process)
    passing = iter(batches)
    pids = {next(passing)[0] for _ in range(4)}
    os.kill(min(pids), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"DataLoader worker .* (killed|exited)"):
        list(passing)
    del passing, batches
    gc.collect()
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert ours(temporary) == []


def test_two_loaders_live_side_by_side(base: Path) -> None:
    train, validation = forked(mini(base, 500), batch_size=10), forked(mini(base, 50), batch_size=10)
    passing = iter(train)
    begun = [next(passing) for _ in range(5)]
    assert Counter(flat(validation)) == Counter(range(50))
    assert Counter(flat([*begun, *passing])) == Counter(range(500))


def test_what_processes_do_first_is_done_when_caches_are_open(ten: Any, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def init(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        (seen / str(worker)).write_text(repr(info.dataset._consumer is not None))

    seen.mkdir()
    assert text(forked(ten, batch_size=5, worker_init_fn=init)) == "01234 56789"
    assert {path.name: path.read_text() for path in seen.iterdir()} == {"0": "True", "1": "True"}


def test_numbers_that_transforms_draw_are_seeded_by_torch(base: Path) -> None:
    dataset, runs = mini(base, 40), []
    for _ in range(2):
        generator = torch.Generator().manual_seed(4)
        batches = forked(
            dataset, num_workers=4, batch_size=5, seed=3, shuffle=True, sample_transform_fn=loading.random_number,
            collate_fn=loading.same, dataloader_kwargs={"generator": generator},
        )  # fmt: skip
        runs.append([list(batches), list(batches)])
    assert runs[0] == runs[1]
    first, second = runs[0]
    assert len({batch[0] for batch in first[:4]}) == 4
    assert first != second


SPAWNING = """
import multiprocessing, sys, warnings
multiprocessing.set_forkserver_preload(["torch"])
warnings.simplefilter("ignore")
import polars
from support import drt, loading

loaders = []

def main():
    dataset = drt.open_dataset(sys.argv[1])
    dataset.get_metadata().filter(polars.col("i") >= 0)  # Polars and native threads are at work here before anything forks
    [next(iter(dataset)) for _ in range(3)]
    for method in sys.argv[2:]:
        batches = loading.loader(
            dataset, num_workers=2, batch_size=5, multiprocessing_context=method, sample_transform_fn=loading.number,
            collate_fn=loading.same, verbose=method == sys.argv[-1],
        )
        loaders.append(batches)
        print(method, sorted(loading.flat(batches)) == list(range(len(dataset))), len(list(batches)), flush=True)

if __name__ == "__main__":
    main()
    print("the end", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("methods", [["fork", "spawn"], ["forkserver"]], ids="-".join)
def test_every_start_method_gives_the_same_and_live_loaders_end_with_the_program(
    base: Path, temporary: Path, tmp_path: Path, methods: list[str]
) -> None:
    path = drt.write(base, "mini", sources.mini(64))
    done = run_program(tmp_path / "program.py", SPAWNING, str(path), *methods)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(f"{method} True 13" for method in methods), "the end"]
    lines = done.stderr.splitlines()
    assert all(line.startswith("[dataset_rt.loader] event=") for line in lines), done.stderr
    assert Counter(line.split()[1] for line in lines) == {
        "event=loader_ready": 1,
        "event=reader_started": 2,
        "event=reader_pass": 4,
    }
    assert ours(temporary) == []
