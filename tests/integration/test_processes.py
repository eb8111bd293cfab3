"""`num_processes`: what spawned processes write is what one process writes, and is told in the same way."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import process_sources as doing
from support import values
from support.child import run_program, run_script
from support.process_sources import Acting, Unpicklable

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def write(base: Path, sources: Any, num_processes: int = 2, **options: Any) -> list[Any]:
    return subject.write_results(base, sources, num_workers=1, num_processes=num_processes, **options)


def succeeded(results: list[Any]) -> list[bool]:
    return [isinstance(result, drt.CacheWriteSuccess) for result in results]


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_the_caches_are_those_that_one_process_writes(base: Path, algo: str) -> None:
    sources = [Acting("a", n=200), Acting("b", n=30), Acting("c", n=1)]
    one = subject.write_results(base / "one", sources, algo=algo, max_shard_bytes=1000)
    many = write(base / "many", sources, algo=algo, max_shard_bytes=1000)
    assert succeeded(one) == succeeded(many) == [True] * 3
    for there, here in zip(one, many, strict=True):
        files = sorted(path.relative_to(there.path) for path in there.path.rglob("*") if path.is_file())
        assert len(files) > 4
        assert files == sorted(path.relative_to(here.path) for path in here.path.rglob("*") if path.is_file())
        for file in files:
            assert (there.path / file).read_bytes() == (here.path / file).read_bytes(), file
    assert subject.leftovers(base / "many") == []


def test_results_come_in_the_order_of_the_sources(base: Path, tmp_path: Path) -> None:
    first = Acting("first", doing.wait_for, base / "second" / "manifest.json")
    assert write(base, [first, Acting("second")]) == [
        drt.CacheWriteSuccess("first", base / "first"),
        drt.CacheWriteSuccess("second", base / "second"),
    ]


def test_processes_work_side_by_side_and_each_source_has_its_own(base: Path, tmp_path: Path) -> None:
    sources = [
        Acting("a", doing.announce_and_wait_for, tmp_path, "a.pid", "b.pid"),
        Acting("b", doing.announce_and_wait_for, tmp_path, "b.pid", "a.pid"),
        Acting("c", doing.announce, tmp_path, "c.pid"),
    ]
    assert succeeded(write(base, sources)) == [True] * 3
    pids = [int((tmp_path / f"{name}.pid").read_text()) for name in "abc"]
    assert len({*pids, os.getpid()}) == 4
    assert not any(doing.is_there(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_no_more_processes_live_than_were_asked_for(base: Path, tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()
    sources = [Acting(name, doing.announce_and_sleep, tmp_path / name, "pid", 0.5) for name in "abcde"]
    most, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            pids = [int((tmp_path / name / "pid").read_text()) for name in "abcde" if (tmp_path / name / "pid").exists()]
            most[0] = max(most[0], sum(map(doing.is_running, pids)))
            time.sleep(0.01)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        assert succeeded(write(base, sources)) == [True] * 5
    finally:
        done.set()
        thread.join()
    assert most == [2]


def test_processes_are_spawned_whatever_the_default_is(base: Path) -> None:
    doing.TOUCHED.append("by the parent")
    try:
        assert succeeded(write(base, Acting("a", doing.check_is_spawned))) == [True]
    finally:
        doing.TOUCHED.clear()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for threads in /proc")
def test_each_process_has_as_many_threads_as_the_runtime(base: Path) -> None:
    sources = [Acting("a", doing.check_pool_threads, 3)]
    results = subject.write_results(base, sources, num_workers=3, num_processes=1)
    assert succeeded(results) == [True], results


def test_sources_are_pickled_one_at_a_time_when_their_turn_comes(base: Path) -> None:
    finished: dict[str, list[str]] = {}

    class Watched(Acting):
        def __reduce__(self) -> Any:
            finished[self.name] = sorted(path.name for path in base.iterdir() if path.name != "tmp")
            return (Acting, (self.name,))

    assert succeeded(write(base, [Watched(name) for name in "abc"], num_processes=1)) == [True] * 3
    assert finished == {"a": [], "b": ["a"], "c": ["a", "b"]}


def test_a_source_may_read_a_dataset_or_write_with_processes(base: Path) -> None:
    cache = subject.write(base, "there", [(b"x", {"i": i}) for i in range(20)])
    sources = [Acting("reading", doing.read_all, cache, 20), Acting("writing", doing.write_in_processes, base / "inner")]
    assert succeeded(write(base, sources)) == [True, True]
    assert sorted(path.name for path in (base / "inner").iterdir()) == ["inner-a", "inner-b", "tmp"]


def test_a_relative_path_stays_relative(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    assert write(Path("here"), Acting("a")) == [drt.CacheWriteSuccess("a", Path("here/a"))]
    assert (base / "here" / "a" / "manifest.json").is_file()


def test_without_sources_there_are_no_results(base: Path) -> None:
    assert write(base, []) == []
    assert list(base.iterdir()) == []


# names ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [5, None, b"a", "", ".", "..", "a/b", "a\0b", "\ud800", "tmp", "Tmp", "x" * 256])
def test_an_unusable_name_is_refused_as_without_processes(base: Path, name: Any) -> None:
    one = subject.write_results(base / "one", [Acting(name), Acting("good")])
    many = write(base / "many", [Acting(name), Acting("good")])
    assert one[0] == many[0] and isinstance(many[0], drt.CacheWriteError)
    assert succeeded(many) == [False, True]


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("é", "e\u0301")])
def test_two_sources_of_one_name_are_refused_before_anything_is_written(base: Path, names: tuple[str, str]) -> None:
    with pytest.raises(drt.InvalidInputError) as caught:
        write(base, [Acting("first"), *map(Acting, names)])
    assert caught.value.kind == "duplicate-name"
    assert list(base.iterdir()) == []


def test_a_cache_that_exists_is_an_error_and_its_source_is_not_pickled(base: Path) -> None:
    subject.write(base, "a", [(b"x", {"i": 1})])
    sources = [Unpicklable("a"), Acting("b")]
    one = subject.write_results(base, sources[:1])
    many = write(base, sources)
    assert one[0] == many[0] and isinstance(many[0].exception, drt.CacheExistsError)
    assert succeeded(many) == [False, True]


# reuse ------------------------------------------------------------------------------------------------------------------------


def test_from_cache_sources_reuses_what_is_there_and_writes_the_rest(base: Path) -> None:
    subject.write(base, "b", [(b"old", {"i": 7, "cls": 0, "s": ""})])
    (base / "broken").mkdir()
    outcome = subject.runtime().from_cache_sources(
        [Acting("a", n=4), Unpicklable("b"), Acting("broken"), Unpicklable("lost"), Acting("c", n=2)], base,
        reader_config=subject.reader_config(), writer_config=subject.writer_config(num_processes=2),
    )  # fmt: skip
    assert isinstance(outcome, drt.CacheSourcesDatasetSuccess)
    assert succeeded(outcome.results) == [True, True, False, False, True]
    assert [sample.metadata["i"] for sample in outcome.dataset] == [0, 1, 2, 3, 7, 0, 1]
    assert outcome.dataset.cache_paths == [base / "a", base / "b", base / "c"]


def test_nothing_is_spawned_when_every_cache_is_there(base: Path) -> None:
    subject.write(base, "a", [(b"x", {"i": 1})])
    script = """
from support import drt, process_sources
import multiprocessing
def refuse(*args, **kwargs):
    raise AssertionError("a process was started")
multiprocessing.process.BaseProcess.start = refuse
outcome = drt.runtime().from_cache_sources(
    [process_sources.Unpicklable("a")], ARGS["base"],
    reader_config=drt.reader_config(), writer_config=drt.writer_config(num_processes=2),
)
report(len(outcome.dataset))
"""
    assert run_script(script, {"base": str(base)}) == 1


# errors of sources ------------------------------------------------------------------------------------------------------------


def test_an_exception_of_a_source_is_told_as_without_processes(base: Path) -> None:
    error = LookupError("not here", 3)
    source = Acting("a", doing.fail_because, error, OSError(2, "gone"))
    one = subject.write_results(base, [source])
    many = write(base, [source, Acting("b")])
    assert one[0] == many[0]
    assert succeeded(many) == [False, True]
    raised = many[0].exception
    assert type(raised) is drt.SourceError and raised.kind == "source-raised"
    assert type(raised.__cause__) is LookupError and raised.__cause__.args == ("not here", 3)
    assert type(raised.__cause__.__cause__) is FileNotFoundError
    (note,) = raised.__cause__.__notes__
    assert "Traceback (most recent call last):" in note and "in fail_because" in note
    assert subject.leftovers(base) == []


def test_an_exception_that_cannot_travel_has_a_stand_in(base: Path) -> None:
    (failed,) = write(base, Acting("a", doing.fail_unshippably))
    assert failed.message == "source 'a', sample 3: the source raised Unshippable: 1 and 2"
    stand_in = failed.exception.__cause__
    assert isinstance(stand_in, Exception)
    assert (type(stand_in).__module__, type(stand_in).__name__) == ("support.process_sources", "Unshippable")
    assert str(stand_in) == "1 and 2"
    assert "in fail_unshippably" in stand_in.__notes__[0]


def test_a_bad_sample_is_told_as_without_processes(base: Path) -> None:
    source = subject.sources.ListSource("a", [(b"x", {"i": 1}), (b"x", {"i": "one"})])
    one, many = subject.write_results(base, source), write(base, source)
    assert one == many and isinstance(many[0], drt.CacheWriteError)
    assert type(one[0].exception) is type(many[0].exception) and one[0].exception.kind == many[0].exception.kind


@pytest.mark.parametrize("source", [Unpicklable("lost"), Acting("lost", lambda: None)], ids=["reduce", "lambda"])
def test_a_source_that_cannot_be_pickled_costs_itself_only(base: Path, source: Any) -> None:
    results = write(base, [Acting("a"), source, Acting("b")], num_processes=1)
    assert succeeded(results) == [True, False, True]
    assert "cannot be pickled" in results[1].message
    assert results[1].exception.kind == "not-picklable"
    assert results[1].exception.__cause__ is not None


def test_a_source_that_cannot_be_unpickled_costs_itself_only(base: Path) -> None:
    lost = doing.Loud("lost", doing.fail, ValueError("no room here"))
    results = write(base, [Acting("a"), lost, Acting("b")], num_processes=1)
    assert succeeded(results) == [True, False, True]
    assert "could not be unpickled in its process: ValueError: no room here" in results[1].message
    assert results[1].exception.kind == "not-picklable"
    assert isinstance(results[1].exception.__cause__, ValueError)


def test_a_class_that_the_process_cannot_import_is_said_to_be_so(base: Path) -> None:
    script = """
from support import drt, process_sources
class Local(process_sources.Acting):
    pass
results = drt.write_results(ARGS["base"], [Local("a"), process_sources.Acting("b")], num_processes=2)
report([str(result[1]) for result in results])
"""
    first, second = run_script(script, {"base": str(base)})
    assert "'Local'" in first and "importable" in first
    assert second == str(base / "b")


# progress and output ----------------------------------------------------------------------------------------------------------


def test_progress_is_a_line_per_source_on_standard_error(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sources = [Acting("a", n=20), Acting("b", doing.fail, KeyError("x")), Acting("c", n=5)]
    write(base, sources, num_processes=1, show_progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 3
    assert re.fullmatch(
        r"dataset-rt: a: 20 samples \(\d+ samples/s, [\d.]+ MB/s\), 1/3 sources done, "
        r"20 samples and 0\.0 MB in all, about \d+ s left",
        lines[0],
    )
    assert lines[1].startswith("dataset-rt: b: failed, 2/3 sources done, 20 samples")
    assert re.fullmatch(r"dataset-rt: c: 5 samples \(.*\), 3/3 sources done, 25 samples and 0\.0 MB in all", lines[2])


def test_progress_counts_payload_bytes(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = subject.sources.ListSource("a", [(bytes(700_000), {"i": i}) for i in range(3)])
    write(base, source, algo="lz4", show_progress=True)
    assert "3 samples and 2.1 MB in all" in capfd.readouterr().err


def test_nothing_is_said_unless_asked_for_and_sources_may_speak(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert succeeded(write(base, Acting("a", doing.say, b"to you\n", b"oh dear\n"))) == [True]
    assert capfd.readouterr() == ("to you\n", "oh dear\n")


# where it can be used ---------------------------------------------------------------------------------------------------------


def test_processes_cost_nothing_where_they_are_not_used(base: Path) -> None:
    script = """
import sys
import dataset_rt
light = "multiprocessing" not in sys.modules
from support import drt, sources
drt.write(__import__("pathlib").Path(ARGS["base"]), "a", sources.mini(3))
report([light, "dataset_rt._processes" in sys.modules])
"""
    assert run_script(script, {"base": str(base)}) == [True, False]


def test_a_daemonic_process_is_refused_with_the_reason(base: Path) -> None:
    script = """
import multiprocessing
from support import daemonic
context = multiprocessing.get_context("spawn")
ours, theirs = context.Pipe()
process = context.Process(target=daemonic.try_to_write, args=(theirs, ARGS["base"]), daemon=True)
process.start()
report(ours.recv() if ours.poll(60) else None)
process.join()
"""
    kind, message = run_script(script, {"base": str(base)})
    assert kind == "invalid-config"
    assert "daemonic" in message and "num_processes=0" in message
    assert list(base.iterdir()) == []


UNGUARDED = """
import sys
with open(sys.argv[1], "a") as log:
    log.write("ran\\n")
from support import drt
class Source:
    def __init__(self, name):
        self.name = name
    def __iter__(self):
        return iter([(b"x", {"i": 1})])
for result in drt.write_results(sys.argv[2], [Source(name) for name in "abcdefgh"], num_processes=2):
    print(result.message)
"""


def test_a_script_without_a_main_guard_is_told_about_it(base: Path, tmp_path: Path) -> None:
    done = run_program(tmp_path / "program.py", UNGUARDED, str(tmp_path / "log"), str(base))
    assert done.returncode == 0, done.stderr
    messages = done.stdout.splitlines()
    assert len(messages) == 8
    assert all("ended with exit code 1 while it started" in message for message in messages), messages
    assert all('if __name__ == "__main__":' in message for message in messages), messages
    assert "importing the main module" in done.stderr  # the children's own words
    assert len((tmp_path / "log").read_text().splitlines()) <= 3, "the script ran again and again"


GUARDED = """
import sys
from support import drt
class Source:
    def __init__(self, name):
        self.name = name
    def __iter__(self):
        return iter([(b"x", {"i": 1})])
if __name__ == "__main__":
    for result in drt.write_results(sys.argv[1], [Source("a"), Source("b")], num_processes=2):
        print(result.path)
"""


def test_sources_may_be_defined_in_a_guarded_script(base: Path, tmp_path: Path) -> None:
    done = run_program(tmp_path / "program.py", GUARDED, str(base))
    assert (done.returncode, done.stdout.splitlines()) == (0, [str(base / "a"), str(base / "b")]), done.stderr
    assert len(list(subject.open_dataset([base / "a", base / "b"]))) == 2


def test_values_of_all_kinds_come_through(base: Path) -> None:
    source = subject.sources.ListSource("all", subject.sources.all_kinds())
    (one,) = subject.write_results(base / "one", source)
    (many,) = write(base / "many", source)
    assert values.digest(subject.open_dataset(one.path)) == values.digest(subject.open_dataset(many.path))
