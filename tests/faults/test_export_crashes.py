"""Exports that are killed, or run out of disk: there is a whole export or none, and the next one is not hindered."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import polars as pl
import pytest
from support import drt as subject
from support.child import HANG_SECONDS, read_report, run_script, start_script
from support.disk import mounted
from support.sources import mini

pytestmark = [pytest.mark.slow, pytest.mark.ours]

ROWS = 50
FILES = ["dataset.json", "drt_export.json", "metadata.arrow"]

# Each system call that _export makes is a call of a C function from its code (or from tempfile's, for the work folder).
KILLED_AT_A_STEP = """
import os, signal
from support import drt as subject
dataset = subject.open_dataset(ARGS["cache"], seed=3, shuffle=True)
dataset.update_metadata(dataset.get_metadata().reverse())
STEPS = {"open", "fsync", "link", "unlink", "rmdir", "mkdir", "flock", "write", "flush", "close", "scandir", "read"}
steps = []
def watch(frame, event, function):
    if event != "c_call" or function.__name__ not in STEPS:
        return
    if frame.f_globals.get("__name__") in ("dataset_rt._export", "tempfile"):
        if len(steps) == ARGS["step"]:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(function.__name__)
sys.setprofile(watch)
dataset.dump_config(ARGS["folder"])
sys.setprofile(None)
report(steps)
"""


def is_complete(folder: Path, table: pl.DataFrame) -> bool:
    """Whether there is an export; one that is there has to be whole."""
    config = folder / "dataset.json"
    if not config.exists():
        with pytest.raises(drt.CacheNotFoundError):
            drt.CachedDataset.from_config(config)
        return False
    assert drt.CachedDataset.from_config(config).get_metadata().equals(table)
    return True


def export_again(folder: Path, dataset: Any) -> None:
    """After a kill the next export is made, unless the killed one was complete; no leftover hinders it."""
    table = dataset.get_metadata()
    if is_complete(folder, table):
        before = sorted(os.listdir(folder))
        with pytest.raises(drt.CacheExistsError):
            dataset.dump_config(folder)
        assert sorted(os.listdir(folder)) == before
        assert set(FILES) <= set(before)
    else:
        dataset.dump_config(folder)
        assert sorted(os.listdir(folder)) == sorted([*FILES, "notes.txt"])
    assert is_complete(folder, table)
    assert (folder / "notes.txt").read_text() == "mine"


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    return folder


def reversed_dataset(cache: Path) -> Any:
    dataset = subject.open_dataset(cache, seed=3, shuffle=True)
    dataset.update_metadata(dataset.get_metadata().reverse())
    return dataset


def test_an_export_killed_at_any_step_is_whole_or_absent_and_can_be_repeated(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", mini(ROWS))
    dataset = reversed_dataset(cache)
    straight = make_folder(tmp_path / "straight")
    steps = run_script(KILLED_AT_A_STEP, {"cache": str(cache), "folder": str(straight), "step": -1})
    assert steps.count("link") == 3 and steps.count("fsync") >= 5 and "flock" in steps and "rmdir" in steps
    outcomes = []
    for step in range(len(steps)):
        folder = make_folder(tmp_path / str(step))
        process = start_script(KILLED_AT_A_STEP, {"cache": str(cache), "folder": str(folder), "step": step})
        process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == -signal.SIGKILL, step
        outcomes.append(is_complete(folder, dataset.get_metadata()))
        export_again(folder, dataset)
    last_link = max(at for at, name in enumerate(steps) if name == "link")
    assert outcomes == [step > last_link for step in range(len(steps))]


def test_an_export_killed_while_it_clears_up_after_another_can_be_repeated(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", mini(ROWS))
    dataset = reversed_dataset(cache)

    def run(folder: Path, step: int) -> list[str]:
        process = start_script(KILLED_AT_A_STEP, {"cache": str(cache), "folder": str(folder), "step": step})
        steps = read_report(process) if step < 0 else []
        process.communicate(timeout=HANG_SECONDS)
        return steps

    straight = run(make_folder(tmp_path / "straight"), -1)
    third_link = [at for at, name in enumerate(straight) if name == "link"][2]
    run(make_folder(tmp_path / "measured"), third_link)
    steps = run(tmp_path / "measured", -1)
    clearing = range(steps.index("unlink"), steps.index("mkdir"))
    assert [steps[at] for at in clearing] == ["unlink"] * 5 + ["rmdir"]
    for step in clearing:
        folder = make_folder(tmp_path / str(step))
        run(folder, third_link)
        assert {"metadata.arrow", "drt_export.json"} < set(os.listdir(folder)) and not is_complete(folder, dataset.get_metadata())
        run(folder, step)
        export_again(folder, dataset)


KILLED_AT_RANDOM = """
from support import drt as subject
dataset = subject.open_dataset(ARGS["cache"], seed=3, shuffle=True)
dataset.update_metadata(dataset.get_metadata().reverse())
report("ready")
dataset.dump_config(ARGS["folder"])
report("finished")
import time
time.sleep(1000)
"""


def test_an_export_killed_at_random_is_whole_or_absent(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", ((b"", {"i": i, "s": f"row {i}"}) for i in range(200_000)))
    dataset, rng, longest = reversed_dataset(cache), random.Random(4), 0.0
    outcomes = []
    for attempt in range(8):
        folder = make_folder(tmp_path / str(attempt))
        process = start_script(KILLED_AT_RANDOM, {"cache": str(cache), "folder": str(folder)})
        assert read_report(process) == "ready"
        start = time.monotonic()
        if attempt == 0:
            assert read_report(process) == "finished"
            longest = time.monotonic() - start
        elif attempt > 1:
            time.sleep(rng.uniform(0.0, longest))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HANG_SECONDS)
        outcomes.append(is_complete(folder, dataset.get_metadata()))
        export_again(folder, dataset)
    assert outcomes[0] and not all(outcomes)


def test_a_work_folder_that_another_program_made_keeps_its_files(base: Path, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "export")
    (folder / ".drt-export-mine").mkdir()
    (folder / ".drt-export-mine" / "letter.txt").write_text("mine")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "metadata.arrow").write_text("mine")
    (folder / ".drt-export-link").symlink_to(tmp_path / "target")
    subject.open_dataset(subject.write(base, "a", mini(ROWS))).dump_config(folder)
    assert (folder / ".drt-export-mine" / "letter.txt").read_text() == "mine"
    assert (tmp_path / "target" / "metadata.arrow").read_text() == "mine"


def test_a_table_that_somebody_put_there_is_not_taken_for_a_leftover(base: Path, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "export")
    work = folder / ".drt-export-dead"
    work.mkdir()
    (work / "metadata.arrow").write_text("a killed export's")
    (folder / "metadata.arrow").write_text("mine")
    dataset = subject.open_dataset(subject.write(base, "a", mini(ROWS)))
    with pytest.raises(drt.CacheExistsError, match=r"metadata\.arrow"):
        dataset.dump_config(folder)
    assert (folder / "metadata.arrow").read_text() == "mine"


def test_an_export_that_is_at_work_is_not_swept(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", mini(ROWS))
    folder = make_folder(tmp_path / "export")
    script = """
import os, time
from support import drt as subject
from dataset_rt import _export
dataset = subject.open_dataset(ARGS["cache"])
def wait(frame, event, function):
    if event == "c_call" and function is os.link:
        sys.setprofile(None)
        report("publishing")
        time.sleep(1000)
sys.setprofile(wait)
dataset.dump_config(ARGS["folder"])
"""
    process = start_script(script, {"cache": str(cache), "folder": str(folder)})
    assert read_report(process) == "publishing"
    before = sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))
    dataset = reversed_dataset(cache)
    with pytest.raises(drt.CacheExistsError, match="another export is being written"):
        dataset.dump_config(folder)
    assert sorted(str(each.relative_to(folder)) for each in folder.rglob("*")) == before and len(before) == 5
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=HANG_SECONDS)
    export_again(folder, dataset)


def test_an_interrupted_export_leaves_nothing(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", mini(ROWS))
    script = """
import os
from support import drt as subject
dataset = subject.open_dataset(ARGS["cache"])
links = []
def interrupt(frame, event, function):
    if event == "c_call" and function is os.link:
        links.append(1)
        if len(links) == ARGS["link"]:
            sys.setprofile(None)
            raise KeyboardInterrupt
sys.setprofile(interrupt)
try:
    dataset.dump_config(ARGS["folder"])
except KeyboardInterrupt:
    report(sorted(os.listdir(ARGS["folder"])))
"""
    for link in (1, 2, 3):
        folder = make_folder(tmp_path / str(link))
        assert run_script(script, {"cache": str(cache), "folder": str(folder), "link": link}) == ["notes.txt"]


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MiB, mounted for one test."""
    with mounted(megabytes=1) as folder:
        yield folder


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_disk_is_a_storage_error_and_leaves_nothing(base: Path, small_disk: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ((b"", {"i": i}) for i in range(60_000))))
    folder = make_folder(small_disk / "export")
    with pytest.raises(drt.StorageError, match=r"(?i)no space left") as caught:
        dataset.dump_config(folder)
    assert caught.value.path == str(folder) and str(folder) in str(caught.value)
    assert os.listdir(folder) == ["notes.txt"]
    dataset.update_metadata(dataset.get_metadata().head(10))
    assert len(drt.CachedDataset.from_config(dataset.dump_config(folder))) == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_storage_error(base: Path, tmp_path: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", mini(ROWS)))
    folder = make_folder(tmp_path / "export")
    folder.chmod(0o500)
    try:
        with pytest.raises(drt.StorageError) as caught:
            dataset.dump_config(folder)
    finally:
        folder.chmod(0o700)
    assert caught.value.path == str(folder)
