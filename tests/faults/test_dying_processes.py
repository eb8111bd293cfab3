"""Processes that die, hang or are interrupted: each costs its own source, and none outlives the call."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import process_sources as doing
from support.child import HANG_SECONDS, read_report, run_program, run_script, start_program, start_script
from support.process_sources import Acting, Loud

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]

TIMEOUT_SECONDS = 4.0


def write(base: Path, sources: Any, num_processes: int = 2, **options: Any) -> list[Any]:
    return subject.write_results(base, sources, num_workers=1, num_processes=num_processes, **options)


def kinds(results: list[Any]) -> list[str]:
    return [type(result).__name__.removeprefix("CacheWrite") for result in results]


def assert_only_the_second_failed(base: Path, results: list[Any], words: str, kind: str) -> None:
    assert kinds(results) == ["Success", "Error", "Success", "Success"], results
    assert words in results[1].message.replace(str(base), "BASE")
    assert type(results[1].exception) is drt.SourceError and results[1].exception.kind == kind
    assert not results[1].message.startswith("source ") and not (base / "bad").exists()
    dataset = subject.open_dataset([result.path for result in results if result.source_name != "bad"], validate=True)
    assert subject.ids(dataset) == [*range(300), *range(10), *range(300)]
    assert subject.leftovers(base) == []


def around(bad: Any) -> list[Any]:
    return [Acting("a", n=300), bad, Acting("b"), Acting("c", n=300)]


# dying ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ((os._exit, 7), "exit code 7"),
        ((os._exit, 0), "exit code 0"),
        ((signal.raise_signal, signal.SIGKILL), "SIGKILL"),
        ((signal.raise_signal, signal.SIGSEGV), "SIGSEGV"),
        ((signal.raise_signal, signal.SIGABRT), "SIGABRT"),
        ((signal.raise_signal, signal.SIGTERM), "SIGTERM"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_process_that_dies_costs_its_own_source(base: Path, call: tuple[Any, ...], words: str, num_processes: int) -> None:
    results = write(base, around(Acting("bad", *call)), num_processes)
    assert_only_the_second_failed(base, results, words, "process-died")


def test_a_process_that_dies_while_unpickling_costs_its_own_source(base: Path) -> None:
    assert_only_the_second_failed(base, write(base, around(Loud("bad", os._exit, 9))), "exit code 9", "process-died")


def test_from_cache_sources_opens_what_the_others_wrote(base: Path) -> None:
    outcome = subject.runtime().from_cache_sources(
        around(Acting("bad", os._exit, 7)), base,
        reader_config=subject.reader_config(), writer_config=subject.writer_config(num_processes=2),
    )  # fmt: skip
    assert isinstance(outcome, drt.CacheSourcesDatasetSuccess)
    assert_only_the_second_failed(base, outcome.results, "exit code 7", "process-died")
    assert len(outcome.dataset) == 610


def test_a_process_that_leaves_a_forked_child_behind_is_noticed(base: Path, tmp_path: Path) -> None:
    """That child has the pipes to the parent open, so nothing but the end of the process itself tells of it."""
    script = """
import os, signal
from pathlib import Path
from support import drt, process_sources as doing
source = doing.Acting("a", doing.fork_and_die, Path(ARGS["folder"]), "pid")
(result,) = drt.write_results(ARGS["base"], source, num_processes=1)
os.kill(int(doing.wait_for(Path(ARGS["folder"]) / "pid")), signal.SIGKILL)
report([type(result).__name__, result[1]])
"""
    kind, message = run_script(script, {"base": str(base), "folder": str(tmp_path)})
    assert kind == "CacheWriteError" and "SIGKILL" in message


def test_a_process_that_died_leaves_nothing_and_its_name_can_be_written(base: Path) -> None:
    assert kinds(write(base, Acting("a", os._exit, 7))) == ["Error"]
    assert subject.leftovers(base) == []
    assert kinds(write(base, Acting("a"))) == ["Success"]


@pytest.mark.slow
def test_a_thread_that_a_source_leaves_behind_does_not_keep_the_process(base: Path, tmp_path: Path) -> None:
    results = write(base, [Acting("a", doing.leave_a_thread_behind), Acting("b", doing.announce, tmp_path, "pid")])
    assert kinds(results) == ["Success", "Success"]
    assert no_children_left()


def no_children_left() -> bool:
    import multiprocessing

    return multiprocessing.active_children() == []


# hanging ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("hang", [doing.announce_and_sleep, doing.announce_and_hang])
def test_a_process_that_hangs_is_stopped_and_costs_its_own_source(base: Path, tmp_path: Path, hang: Any) -> None:
    results = write(base, around(Acting("bad", hang, tmp_path, "pid")), process_timeout_seconds=TIMEOUT_SECONDS)
    assert_only_the_second_failed(base, results, "process_timeout_seconds=4", "process-timeout")
    assert not doing.is_there(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_unpickling_counts_towards_the_time(base: Path) -> None:
    results = write(base, around(Loud("bad", time.sleep, 1000)), process_timeout_seconds=TIMEOUT_SECONDS)
    assert_only_the_second_failed(base, results, "process_timeout_seconds=4", "process-timeout")


SLOW_MAIN = """
import os, sys, time
from pathlib import Path
from support import drt
from support.process_sources import Acting, announce, wait_for
if __name__ == "__mp_main__":
    announce(Path(sys.argv[2]), str(os.getpid()))
    wait_for(Path(sys.argv[2]) / "go")
if __name__ == "__main__":
    large = Acting("large", n=1)
    large.ballast = bytes(1 << 24)  # no pipe holds that
    try:
        (result,) = drt.write_results(sys.argv[1], large, num_processes=1, process_timeout_seconds=float(sys.argv[3]))
        print(result.message)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """A folder that processes announce themselves in."""
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_a_process_that_never_comes_up_is_stopped(base: Path, tmp_path: Path, pids: Path) -> None:
    done = run_program(tmp_path / "program.py", SLOW_MAIN, str(base), str(pids), "2")
    assert done.returncode == 0, done.stderr
    assert "process_timeout_seconds=2 to start" in done.stdout
    assert not doing.is_running(first_name(pids))


def test_a_main_module_that_cannot_be_imported_is_said_to_be_so(base: Path, tmp_path: Path) -> None:
    program = """
import sys
from support import drt
from support.process_sources import Acting
if __name__ == "__mp_main__":
    raise LookupError("no such luck")
if __name__ == "__main__":
    for result in drt.write_results(sys.argv[1], [Acting(name) for name in "abcdef"], num_processes=1):
        print(result.message)
"""
    done = run_program(tmp_path / "program.py", program, str(base))
    assert done.returncode == 0, done.stderr
    messages = done.stdout.splitlines()
    assert len(messages) == 6 and all("main module" in message for message in messages), messages
    assert done.stderr.count("no such luck") == done.stderr.count("LookupError") == 2  # its line of code, and the error: once


# exits and interrupts ---------------------------------------------------------------------------------------------------------


def exiting(base: Path, pids: Path, error: BaseException) -> list[Any]:
    """Sources of which the first is written, the second sleeps, and the third raises while the second does."""
    return [
        Acting("done"),
        Acting("sleeping", doing.announce_and_sleep, pids, "sleeping"),
        Waiting("raising", pids / "sleeping", error),
        Acting("later", doing.announce, pids, "later"),
    ]


class Waiting(Acting):
    def __init__(self, name: str, path: Path, error: BaseException) -> None:
        super().__init__(name, doing.fail, error)
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        doing.wait_for(self.path)
        yield from super().__iter__()


def assert_all_was_stopped(base: Path, pids: Path) -> None:
    assert subject.ids(subject.open_dataset(base / "done", validate=True)) == list(range(10))
    assert sorted(path.name for path in base.iterdir()) == ["done", "tmp"]
    assert subject.leftovers(base) == []
    assert [path.name for path in pids.iterdir()] == ["sleeping"]
    assert not doing.is_there(int((pids / "sleeping").read_text()))


@pytest.mark.parametrize("code", [3, 0, None, "a reason"])
def test_an_exit_in_a_process_ends_the_call_with_its_code(base: Path, pids: Path, code: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        write(base, exiting(base, pids, SystemExit(code)))
    assert caught.value.code == code and type(caught.value.code) is type(code)
    assert "in fail" in caught.value.__notes__[0]
    assert_all_was_stopped(base, pids)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_what_is_no_exception_ends_the_call_unchanged(base: Path, pids: Path, kind: type[BaseException]) -> None:
    with pytest.raises(kind) as caught:
        write(base, exiting(base, pids, kind("why")))
    assert type(caught.value) is kind and caught.value.args == ("why",)
    assert_all_was_stopped(base, pids)


def test_an_interrupt_sent_to_a_process_ends_the_call(base: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(base, Acting("a", signal.raise_signal, signal.SIGINT))
    assert not (base / "a").exists() and subject.leftovers(base) == []


RUNNING = """
import signal, time
from pathlib import Path
from support import drt
from support.process_sources import Acting, announce_and_hang, announce_and_sleep, announce
base, pids = Path(ARGS["base"]), Path(ARGS["pids"])
if ARGS["handler"]:
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
call = {"sleep": announce_and_sleep, "hang": announce_and_hang}[ARGS["call"]]
sources = [
    Acting("done"),
    Acting("one", call, pids, "one", ARGS["seconds"]) if ARGS["call"] == "sleep" else Acting("one", call, pids, "one"),
    Acting("two", announce_and_sleep, pids, "two", ARGS["seconds"]),
]
report("running")
try:
    results = drt.write_results(base, sources, num_processes=2)
    report([type(result).__name__ for result in results])
except KeyboardInterrupt:
    report("interrupted")
"""


def start(base: Path, pids: Path, call: str = "sleep", *, handler: bool = False, seconds: float = 1000.0) -> Any:
    """Start a script whose processes are at work, in a process group of its own."""
    arguments = {"base": str(base), "pids": str(pids), "call": call, "handler": handler, "seconds": seconds}
    process = start_script(RUNNING, arguments, start_new_session=True)
    assert read_report(process) == "running"
    running = [int(doing.wait_for(pids / name)) for name in ("one", "two")]
    return process, running


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Wait for a script's end; returns what it wrote, reports and errors."""
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err[-2000:]
    assert "Traceback" not in err, err[-2000:]
    return out.splitlines()


@pytest.mark.parametrize("whom", ["the parent", "all, as a terminal does"])
@pytest.mark.parametrize("call", ["sleep", "hang"])
def test_a_real_interrupt_ends_the_call_and_its_processes(base: Path, pids: Path, whom: str, call: str) -> None:
    process, running = start(base, pids, call)
    if whom == "the parent":
        process.send_signal(signal.SIGINT)
    else:
        os.killpg(process.pid, signal.SIGINT)
    assert finish(process) == ['@report "interrupted"']
    assert not any(doing.is_running(pid) for pid in running)
    assert sorted(path.name for path in base.iterdir()) == ["done", "tmp"]
    assert subject.leftovers(base) == []


def test_a_handler_that_does_not_raise_lets_the_processes_go_on(base: Path, pids: Path) -> None:
    process, _ = start(base, pids, handler=True, seconds=1.0)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process) == ['@report ["CacheWriteSuccess", "CacheWriteSuccess", "CacheWriteSuccess"]']


def test_an_interrupt_while_processes_come_up_ends_them_without_noise(base: Path, tmp_path: Path, pids: Path) -> None:
    process = start_program(tmp_path / "program.py", SLOW_MAIN, str(base), str(pids), "1000", start_new_session=True)
    pid = first_name(pids)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process) == ["interrupted"]
    assert not doing.is_running(pid)


def test_an_interrupt_waits_until_a_process_has_come_up(base: Path, tmp_path: Path, pids: Path) -> None:
    process = start_program(tmp_path / "program.py", SLOW_MAIN, str(base), str(pids), "1000")
    os.kill(first_name(pids), signal.SIGINT)
    time.sleep(0.3)  # for a process that does not wait to show it
    (pids / "go").touch()
    assert finish(process) == ["interrupted"]


def first_name(pids: Path) -> int:
    """Wait for the first process that announces itself."""
    deadline = time.monotonic() + HANG_SECONDS
    while not (names := [path.name for path in pids.iterdir() if path.name.isdigit()]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(names[0])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("call", ["sleep", "hang"])
def test_processes_end_when_their_parent_is_killed(base: Path, pids: Path, call: str, number: int) -> None:
    process, running = start(base, pids, call)
    process.send_signal(number)
    process.communicate(timeout=HANG_SECONDS)
    deadline = time.monotonic() + HANG_SECONDS
    while any(doing.is_running(pid) for pid in running):
        assert time.monotonic() < deadline, "a process goes on without its parent"
        time.sleep(0.05)
    assert not (base / "one").exists() and not (base / "two").exists()
    # One that could clean up has; for the others the next write does.
    assert len(subject.leftovers(base)) == (3 if call == "hang" else 0)
    subject.write(base, "after", subject.sources.ten_rows())
    assert subject.leftovers(base) == []


# two writers of one name ------------------------------------------------------------------------------------------------------

TWO_WRITERS = """
from pathlib import Path
from support import drt
from support.process_sources import Acting, announce_and_wait_for
base, pids, mine, other = Path(ARGS["base"]), Path(ARGS["pids"]), ARGS["mine"], ARGS["other"]
source = Acting("same", announce_and_wait_for, pids, mine, other, n=500 + ARGS["more"])
config = drt.writer_config(num_processes=ARGS["num_processes"], max_shard_bytes=1000)
if ARGS["reuse"]:
    outcome = drt.runtime().from_cache_sources(source, base, reader_config=drt.reader_config(), writer_config=config)
    (result,) = outcome.results
    report([type(result).__name__, str(result[1]), len(outcome.dataset)])
else:
    (result,) = drt.runtime().write_cache(source, base, writer_config=config)
    report([type(result).__name__, str(result[1]), 0])
"""


def run_two_writers(base: Path, pids: Path, *, num_processes: int, reuse: bool) -> list[list[Any]]:
    """Have two processes write one name; each is half-way when the other is. The second has one sample more.

    The first one's claim is taken away, as where neither sees the locks of the other.
    """
    pids = pids.resolve()
    writers = []
    for more, (mine, other) in enumerate([("x", "y"), ("y", "x")]):
        if writers:
            doing.wait_for(pids / "x")
            (claim,) = (base / "tmp").glob("*.claim")
            claim.unlink()
        arguments = {"base": str(base), "pids": str(pids), "mine": mine, "other": str(pids / other), "more": more}
        writers.append(start_script(TWO_WRITERS, {**arguments, "num_processes": num_processes, "reuse": reuse}))
    reports = [read_report(writer) for writer in writers]
    for writer in writers:
        writer.communicate(timeout=HANG_SECONDS)
    return reports


@pytest.mark.parametrize("num_processes", [0, 1])
def test_of_two_writers_one_publishes_and_the_other_is_told(base: Path, pids: Path, num_processes: int) -> None:
    reports = run_two_writers(base, pids, num_processes=num_processes, reuse=False)
    assert sorted(kind for kind, _, _ in reports) == ["CacheWriteError", "CacheWriteSuccess"]
    winner = next(i for i, (kind, _, _) in enumerate(reports) if kind == "CacheWriteSuccess")
    assert f"{base / 'same'} already exists" in reports[1 - winner][1]
    assert len(list(subject.open_dataset(base / "same", validate=True))) == 500 + winner
    assert subject.leftovers(base) == []


@pytest.mark.parametrize("num_processes", [0, 1])
def test_of_two_that_want_one_cache_both_open_the_same(base: Path, pids: Path, num_processes: int) -> None:
    reports = run_two_writers(base, pids, num_processes=num_processes, reuse=True)
    assert [report[:2] for report in reports] == [["CacheWriteSuccess", str(base / "same")]] * 2
    count = len(list(subject.open_dataset(base / "same", validate=True)))
    assert count in (500, 501)
    assert [report[2] for report in reports] == [count, count]
    assert subject.leftovers(base) == []
