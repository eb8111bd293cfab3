"""The map-style dataset by itself: rows, snapshots, handles, processes. No torch."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import dataset_rt as drt
import numpy as np
import polars as pl
import pytest
from support import drt as subject
from support.child import run_program, run_script, start_program
from support.sources import mini, mini_payload

pytestmark = [pytest.mark.ours]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, where nothing must stay."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(params=["none", "lz4"])
def dataset(request: pytest.FixtureRequest, base: Path) -> Any:
    return subject.open_dataset(subject.write(base, "mini", mini(50), algo=request.param))


def number(sample: drt.CachedSample) -> int:
    """A transform that spawned processes can import."""
    assert sample.data == mini_payload(sample.sample_id)
    return sample.sample_id


def test_rows_are_the_samples_of_the_table(dataset: Any) -> None:
    dataset.update_metadata(dataset.get_metadata().filter(pl.col("i") % 2 == 1).reverse())
    rows = dataset.to_torch_map_dataset()
    assert len(rows) == 25
    expected = list(dataset)
    assert [rows[row] for row in range(25)] == expected
    assert list(rows) == expected
    assert rows.__getitems__([3, 0, 3, -1]) == [expected[3], expected[0], expected[3], expected[24]]
    assert rows.__getitems__([]) == []


def test_rows_are_numbered_like_a_list(dataset: Any) -> None:
    rows = dataset.to_torch_map_dataset(transform=number)
    assert [rows[row] for row in (0, -1, -50, True, np.int64(7), np.uint8(9))] == [0, 49, 0, 1, 7, 9]
    assert rows.__getitems__(np.array([4, 2])) == [4, 2]
    for row in (50, -51, 2**70):
        with pytest.raises(drt.SampleIndexError, match="has 50") as caught:
            rows[row]
        assert caught.value.kind == "index-out-of-bounds"
        with pytest.raises(IndexError):
            rows.__getitems__([0, row])
    for row in (1.0, "1", None, slice(0, 2)):
        with pytest.raises(TypeError):
            rows[row]


def test_it_is_a_snapshot(dataset: Any) -> None:
    table = dataset.get_metadata()
    stored, next_sample = dataset.to_torch_map_dataset(transform=number), next(iter(subject.open_dataset(dataset.cache_paths)))
    dataset.update_metadata(table.reverse().with_columns(note=pl.lit("x")))
    edited = dataset.to_torch_map_dataset(transform=number)
    dataset.update_metadata(table.head(3))
    dataset.close()
    assert [stored[0], edited[0], len(stored), len(edited)] == [0, 49, 50, 50]
    assert stored.get_metadata().equals(table)
    assert edited.get_metadata()["note"].to_list() == ["x"] * 50
    assert next_sample.sample_id == 0


def test_reading_does_not_move_the_stream(base: Path) -> None:
    path = subject.write(base, "mini", mini(20))
    dataset, other = (subject.open_dataset(path, shuffle=True, seed=3) for _ in range(2))
    list(dataset.to_torch_map_dataset())
    assert subject.ids(dataset) == subject.ids(other)


def test_a_copy_from_a_pickle_reads_the_same(dataset: Any, temporary: Path) -> None:
    dataset.update_metadata(dataset.get_metadata().reverse())
    rows = dataset.to_torch_map_dataset(transform=number, native_num_workers=2)
    copy = pickle.loads(pickle.dumps(rows))
    assert len(copy) == 50
    assert list(copy) == list(rows) == list(range(49, -1, -1))
    assert [entry.name.startswith("dataset-rt-") for entry in temporary.iterdir()] == [True]
    again = pickle.loads(pickle.dumps(copy))
    assert again[0] == 49
    assert len(list(temporary.iterdir())) == 1, "one file for all copies"
    with pytest.raises(drt.InvalidInputError, match="pickled"):
        copy.get_metadata()


def test_the_file_goes_away_with_the_last_copy(dataset: Any, temporary: Path) -> None:
    rows = dataset.to_torch_map_dataset()
    copy = pickle.loads(pickle.dumps(rows))
    del rows
    gc.collect()
    assert copy[3].sample_id == 3
    handle = pickle.dumps(copy)
    del copy
    gc.collect()
    assert list(temporary.iterdir()) == []
    late = pickle.loads(handle)
    with pytest.raises(drt.InvalidInputError, match="keep it alive") as caught:
        late[0]
    assert caught.value.kind == "closed"


def test_a_handle_does_not_grow_with_the_rows(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "mini", mini(1000)))
    small = len(pickle.dumps(dataset.to_torch_map_dataset(transform=number)))
    table = dataset.get_metadata()
    dataset.update_metadata(
        pl.concat([table] * 1000, rechunk=True).with_columns(weight=pl.int_range(1, 1_000_001).cast(pl.Float64))
    )
    rows = dataset.to_torch_map_dataset(transform=number)
    assert len(rows) == 1_000_000
    large = len(pickle.dumps(rows))
    assert large < 64 * 1024
    assert abs(large - small) < 1024


SPAWNED = """
import multiprocessing, os, sys
from pathlib import Path
from support import drt, sources
from support.sources import mini_payload

def number(sample):
    assert sample.data == mini_payload(sample.sample_id)
    return sample.sample_id

def work(rows, pipe, status):
    pipe.send(list(rows))
    if status:
        os._exit(status)

if __name__ == "__main__":
    dataset = drt.open_dataset(drt.write(Path(sys.argv[1]), "mini", sources.mini(40), algo=sys.argv[3]))
    rows = dataset.to_torch_map_dataset(transform=number)
    context = multiprocessing.get_context(sys.argv[2])
    for _ in range(2):
        mine, theirs = context.Pipe()
        child = context.Process(target=work, args=(rows, theirs, int(sys.argv[4])))
        child.start()
        assert mine.recv() == list(range(40))
        child.join()
    print("exit", child.exitcode)
"""


@pytest.mark.parametrize("how", ["spawn none 0", "spawn none 9", "fork none 0", "fork lz4 0", "forkserver lz4 0"])
def test_processes_read_it_however_they_start_and_end(base: Path, tmp_path: Path, temporary: Path, how: str) -> None:
    done = run_program(tmp_path / "program.py", SPAWNED, str(base), *how.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["exit", how[-1]]
    assert [entry.name for entry in temporary.iterdir() if entry.name.startswith("dataset-rt-")] == []


def test_an_interrupted_process_leaves_nothing(base: Path, tmp_path: Path, temporary: Path) -> None:
    program = """
import pickle, sys, time
from support import drt, sources
from pathlib import Path
rows = drt.open_dataset(drt.write(Path(sys.argv[1]), "mini", sources.mini(5))).to_torch_map_dataset()
pickle.dumps(rows)
print("ready", flush=True)
sys.stdin.read()
time.sleep(60)
"""
    process = start_program(tmp_path / "program.py", program, str(base))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(list(temporary.iterdir())) == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert list(temporary.iterdir()) == []


def test_a_forked_child_reads_with_threads_of_its_own(dataset: Any) -> None:
    rows = dataset.to_torch_map_dataset(transform=number)
    assert rows[1] == 1
    child = os.fork()
    if child == 0:
        os._exit(0 if rows.__getitems__(range(50)) == list(range(50)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert rows.__getitems__([2]) == [2]


def test_what_cannot_be_is_refused(dataset: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="at least 1"):
        dataset.to_torch_map_dataset(native_num_workers=0)
    with pytest.raises(TypeError, match="transform must be callable"):
        dataset.to_torch_map_dataset(transform=3)
    with pytest.raises(TypeError, match="to_torch_map_dataset"):
        drt.MapDataset()
    dataset.close()
    with pytest.raises(drt.InvalidInputError, match="closed"):
        dataset.to_torch_map_dataset()


def test_reading_loads_neither_torch_nor_polars(base: Path) -> None:
    script = """
from support import drt
rows = drt.open_dataset(ARGS["path"]).to_torch_map_dataset()
assert len(rows.__getitems__([0, 1])) == 2
report(sorted({"torch", "polars", "numpy"} & set(sys.modules)))
"""
    assert run_script(script, {"path": str(subject.write(base, "mini", mini(5)))}) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_share_the_pages_of_the_table(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "mini", mini(1000)))
    table = pl.concat([dataset.get_metadata()] * 4000, rechunk=True)  # 4 million rows: 16 MB of rows, 80 MB with weights
    dataset.update_metadata(table.with_columns(weight=1.0 + pl.int_range(pl.len()) % 7))
    rows = dataset.to_torch_map_dataset()
    script = """
import pickle
def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
import dataset_rt, dataset_rt._map_dataset
before = private()
rows = pickle.loads(bytes.fromhex(ARGS["handle"]))
assert len(rows.__getitems__(range(0, 4_000_000, 1000))) == 4000
report((private() - before) / 1024)
"""
    assert run_script(script, {"handle": pickle.dumps(rows).hex()}) < 10
