"""Fingerprints, stale caches, and two processes that want one name: nothing wrong is reused, nothing is written twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import HANG_SECONDS, read_report, start_script
from support.process_sources import Acting, announce_and_sleep, wait_for
from support.sources import CountingSource, ListSource, ten_rows

pytestmark = pytest.mark.ours


class Printed(CountingSource):
    """A source with a fingerprint, all of whose payloads are that."""

    def __init__(self, fingerprint: Any, name: str = "a", rows: int = 5) -> None:
        super().__init__(name, [(str(fingerprint).encode(errors="replace"), {"i": i}) for i in range(rows)])
        self.fingerprint = fingerprint


def reuse(base: Path, written: Any, **options: Any) -> Any:
    return subject.runtime().from_cache_sources(
        written, base, reader_config=subject.reader_config(), writer_config=subject.writer_config(**options)
    )


def stored(base: Path, name: str = "a") -> Any:
    return json.loads((base / name / "manifest.json").read_text()).get("drt_fingerprint")


def payloads(base: Path, name: str = "a") -> set[bytes]:
    return {sample.data for sample in subject.open_dataset(base / name, validate=True)}


# fingerprints -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_fingerprint_is_stored_and_its_source_reused_while_it_stays(base: Path, num_processes: int) -> None:
    (result,) = subject.write_results(base, Printed("v1 é"), num_processes=num_processes)
    assert isinstance(result, drt.CacheWriteSuccess) and stored(base) == "v1 é"
    again = Printed("v1 é")
    for on_stale in ("error", "rebuild", "reuse"):
        outcome = reuse(base, again, on_stale=on_stale, num_processes=num_processes)
        assert len(outcome.dataset) == 5
    assert again.iterations == 0


def test_a_source_without_a_fingerprint_reuses_whatever_is_there_and_stores_none(base: Path) -> None:
    subject.write(base, "plain", ten_rows())
    assert stored(base, "plain") is None
    subject.write_results(base, Printed("v1"))
    for on_stale in ("error", "rebuild", "reuse"):
        plain = CountingSource("a", ten_rows())
        assert len(reuse(base, plain, on_stale=on_stale).dataset) == 5
        assert plain.iterations == 0 and stored(base) == "v1"


class Raising:
    name = "a"
    error: BaseException = ValueError("no state")

    @property
    def fingerprint(self) -> str:
        raise self.error

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("iterated")


class RaisingAttributeError(Raising):
    error = AttributeError("a typo within")


class Interrupting(Raising):
    error = KeyboardInterrupt()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Printed(None), "NoneType"),
        (Printed(7), "got int"),
        (Printed(b"v1"), "got bytes"),
        (Printed(""), "0 bytes"),
        (Printed("\ud800"), "surrogates"),
        (Printed("é" * 32769), "65538 bytes"),
        (Raising(), "no state"),
        (RaisingAttributeError(), "a typo within"),
    ],
    ids=["None", "int", "bytes", "empty", "surrogate", "long", "raising", "raising-attribute-error"],
)
@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_bad_fingerprint_is_an_error_of_its_source_before_anything_is_iterated(
    base: Path, source: Any, words: str, num_processes: int
) -> None:
    seen: list[Any] = []

    class Asked:
        name = "earlier"

        @property
        def fingerprint(self) -> str:
            seen.append("fingerprint")
            return "v1"

        def __iter__(self) -> Iterator[Any]:
            seen.append("iterated")
            return iter(ten_rows())

    config = subject.writer_config(num_processes=0)
    first, bad = subject.runtime().write_cache([Asked(), source], base, writer_config=config)
    assert seen == ["fingerprint", "iterated"] and isinstance(first, drt.CacheWriteSuccess)
    (alone,) = reuse(base, source, num_processes=num_processes).results
    for result in (bad, alone):
        assert isinstance(result, drt.CacheWriteError) and result.source_name == "a"
        assert isinstance(result.exception, drt.InvalidInputError) and result.exception.kind == "invalid-fingerprint"
        assert "fingerprint" in result.message and words in result.message
    assert getattr(source, "iterations", 0) == 0
    assert not (base / "a").exists() and subject.leftovers(base) == []


def test_the_longest_fingerprint_is_kept(base: Path) -> None:
    subject.write_results(base, Printed("é" * 32768))
    assert stored(base) == "é" * 32768
    assert len(reuse(base, Printed("é" * 32768)).dataset) == 5


def test_an_interrupt_in_a_fingerprint_ends_the_call(base: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        reuse(base, Interrupting())


# stale caches -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_processes", [0, 1])
@pytest.mark.parametrize("old", ["v1", "x" * 1000, None])
def test_a_stale_cache_is_an_error_that_says_what_to_do(base: Path, old: str | None, num_processes: int) -> None:
    subject.write_results(base, ListSource("a", ten_rows()) if old is None else Printed(old))
    source = Printed("v2" * 500)
    outcome = reuse(base, [source, ListSource("b", ten_rows())], num_processes=num_processes)
    bad, good = outcome.results
    assert isinstance(good, drt.CacheWriteSuccess) and len(outcome.dataset) == 10
    assert isinstance(bad, drt.CacheWriteError) and isinstance(bad.exception, drt.CacheExistsError)
    assert bad.exception.kind == "stale-cache" and bad.exception.path == str(base / "a")
    assert str(base / "a") in bad.message and "on_stale='rebuild'" in bad.message and "'v2v2v2" in bad.message
    assert ("none" if old is None else old[:20]) in bad.message
    assert len(bad.message) - len(str(base)) < 400
    assert source.iterations == 0 and stored(base) == old


@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_stale_cache_is_reused_when_asked(base: Path, num_processes: int) -> None:
    subject.write_results(base, Printed("v1"))
    source = Printed("v2")
    assert {sample.data for sample in reuse(base, source, on_stale="reuse", num_processes=num_processes).dataset} == {b"v1"}
    assert source.iterations == 0 and stored(base) == "v1"


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_stale_cache_is_rebuilt_and_open_datasets_keep_the_old_one(base: Path, num_processes: int, io: str) -> None:
    subject.write_results(base, Printed("v1", rows=2000), max_shard_bytes=1000)
    before = subject.open_dataset(base / "a", io=io)
    outcome = reuse(base, Printed("v2", rows=7), on_stale="rebuild", num_processes=num_processes)
    assert {sample.data for sample in outcome.dataset} == {b"v2"} and len(outcome.dataset) == 7
    assert stored(base) == "v2" and payloads(base) == {b"v2"}
    assert [sample.data for sample in before] == [b"v1"] * 2000
    assert subject.leftovers(base) == []


@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_rebuild_that_fails_leaves_the_old_cache(base: Path, num_processes: int) -> None:
    subject.write_results(base, Printed("v1"))
    source = Acting("a", wrong)
    source.fingerprint = "v2"  # type: ignore[attr-defined]
    (result,) = reuse(base, source, on_stale="rebuild", num_processes=num_processes).results
    assert isinstance(result, drt.CacheWriteError) and "went wrong" in result.message
    assert stored(base) == "v1" and payloads(base) == {b"v1"}
    assert subject.leftovers(base) == []


def wrong() -> None:
    raise RuntimeError("it went wrong")


@pytest.mark.parametrize("on_stale", ["error", "rebuild", "reuse"])
def test_write_cache_never_replaces_anything(base: Path, on_stale: str) -> None:
    subject.write_results(base, Printed("v1"))
    source = Printed("v2")
    (result,) = subject.write_results(base, source, on_stale=on_stale)
    assert isinstance(result, drt.CacheWriteError) and "already exists" in result.message
    assert source.iterations == 0 and stored(base) == "v1"


def test_a_link_is_not_replaced(base: Path, tmp_path: Path) -> None:
    real = subject.write(tmp_path / "elsewhere", "a", ten_rows())
    (base / "a").symlink_to(real)
    source = Printed("v2")
    (result,) = reuse(base, source, on_stale="rebuild").results
    assert isinstance(result, drt.CacheWriteError) and "link" in result.message
    assert (base / "a").is_symlink() and len(subject.open_dataset(real)) == 10 and source.iterations == 0


def test_a_fingerprint_that_is_no_text_is_a_malformed_manifest(base: Path) -> None:
    manifest = subject.write(base, "a", ten_rows()) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "drt_fingerprint": 5}))
    (result,) = reuse(base, Printed("v1")).results
    assert isinstance(result, drt.CacheWriteError) and "drt_fingerprint" in result.message


REBUILDING = """
import itertools
from support import drt, sources
class Source:
    name = "a"
    def __init__(self, number):
        self.number = number
        self.fingerprint = str(number)
    def __iter__(self):
        for i in range(ARGS["rows"]):
            yield b"%d" % self.number, {"i": i}
runtime, config = drt.runtime(), drt.writer_config(on_stale="rebuild", max_shard_bytes=600)
for number in itertools.count(ARGS["first"]):
    outcome = runtime.from_cache_sources(Source(number), ARGS["base"], reader_config=drt.reader_config(), writer_config=config)
    assert len(outcome.dataset) == ARGS["rows"], outcome
    report(number)
"""


@pytest.mark.slow
def test_a_process_killed_during_rebuilds_leaves_the_old_cache_or_the_new_one(base: Path) -> None:
    """It rebuilds again and again, some of them in each second; the moments of its death are random."""
    rng, number = random.Random(5), 0
    for _ in range(5):
        process = start_script(REBUILDING, {"base": str(base), "rows": 60, "first": number})
        number = read_report(process)
        time.sleep(rng.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=HANG_SECONDS)
        number = max([number, *(int(line.split()[1]) for line in out.splitlines() if line.startswith("@report "))])
        found = int(stored(base))
        assert found in (number, number + 1)
        assert payloads(base) == {b"%d" % found} and len(subject.open_dataset(base / "a")) == 60
        number = found + 1
    reuse(base, Printed("last"), on_stale="rebuild")
    assert payloads(base) == {b"last"} and subject.leftovers(base) == []


def test_a_dataset_that_is_opened_during_rebuilds_is_of_one_of_them(base: Path) -> None:
    process = start_script(REBUILDING, {"base": str(base), "rows": 50, "first": 0})
    try:
        assert read_report(process) == 0
        runtime, seen = subject.runtime(), set[bytes]()
        while len(seen) < 10:
            dataset = runtime.cached_dataset([base / "a"], reader_config=subject.reader_config())
            (payload,) = {sample.data for sample in dataset}
            seen.add(payload)
    finally:
        process.kill()
        _, err = process.communicate(timeout=HANG_SECONDS)
    assert err == ""


# two writers of one name ------------------------------------------------------------------------------------------------------

WANTING = """
import time
from pathlib import Path
from support import drt
from support.process_sources import wait_for
class Source:
    name = "same"
    iterations = 0
    def __iter__(self):
        self.iterations += 1
        report("iterating")
        yield b"first", {"i": 0}
        if ARGS["until"]:
            wait_for(Path(ARGS["until"]))
        yield ARGS["tag"].encode(), {"i": 1}
source, config = Source(), drt.writer_config(show_progress=True)
runtime = drt.runtime()
try:
    if ARGS["reuse"]:
        outcome = runtime.from_cache_sources(source, ARGS["base"], reader_config=drt.reader_config(), writer_config=config)
        (result,) = outcome.results
    else:
        (result,) = runtime.write_cache(source, ARGS["base"], writer_config=config)
    kind = result.exception.kind if hasattr(result, "exception") else ""
    report([type(result).__name__, str(result[1]), kind, source.iterations])
except KeyboardInterrupt:
    report(["interrupted", "", "", source.iterations])
"""


def want(base: Path, tag: str, *, reuse: bool = True, until: Path | None = None) -> subprocess.Popen[str]:
    return start_script(WANTING, {"base": str(base), "tag": tag, "reuse": reuse, "until": str(until or "")})


def read_until_waiting(process: subprocess.Popen[str]) -> str:
    """Wait until a process says that it waits for another one."""
    assert process.stderr is not None
    for line in process.stderr:
        if "waiting for" in line:
            return line
    raise AssertionError("it ended without having waited")


def test_who_wants_a_cache_that_is_being_written_waits_and_reuses_it(base: Path, tmp_path: Path) -> None:
    first = want(base, "one", until=tmp_path / "go")
    assert read_report(first) == "iterating"
    second = want(base, "two")
    assert f"same: waiting for another process ({first.pid} on " in read_until_waiting(second)
    (tmp_path / "go").touch()
    assert read_report(first) == ["CacheWriteSuccess", str(base / "same"), "", 1]
    assert read_report(second) == ["CacheWriteSuccess", str(base / "same"), "", 0]
    for process in (first, second):
        process.communicate(timeout=HANG_SECONDS)
    assert [sample.data for sample in subject.open_dataset(base / "same", validate=True)] == [b"first", b"one"]
    assert subject.leftovers(base) == []


def test_who_waits_for_a_writer_that_is_killed_writes_the_cache(base: Path, tmp_path: Path) -> None:
    first = want(base, "one", until=tmp_path / "never")
    assert read_report(first) == "iterating"
    second = want(base, "two")
    read_until_waiting(second)
    first.kill()
    first.communicate(timeout=HANG_SECONDS)
    assert read_report(second) == "iterating"
    assert read_report(second) == ["CacheWriteSuccess", str(base / "same"), "", 1]
    second.communicate(timeout=HANG_SECONDS)
    assert [sample.data for sample in subject.open_dataset(base / "same", validate=True)] == [b"first", b"two"]
    assert subject.leftovers(base) == []


def test_ctrl_c_ends_the_waiting_and_disturbs_nobody(base: Path, tmp_path: Path) -> None:
    first = want(base, "one", until=tmp_path / "go")
    assert read_report(first) == "iterating"
    second = want(base, "two")
    read_until_waiting(second)
    second.send_signal(signal.SIGINT)
    assert read_report(second) == ["interrupted", "", "", 0]
    second.communicate(timeout=HANG_SECONDS)
    assert first.poll() is None, "the interrupt did not wait for the other writer"
    (tmp_path / "go").touch()
    assert read_report(first)[0] == "CacheWriteSuccess"
    first.communicate(timeout=HANG_SECONDS)
    assert subject.leftovers(base) == []


def test_write_cache_says_at_once_that_another_process_writes_the_name(base: Path, tmp_path: Path) -> None:
    first = want(base, "one", reuse=False, until=tmp_path / "go")
    assert read_report(first) == "iterating"
    source = CountingSource("same", ten_rows())
    (result,) = subject.write_results(base, source)
    assert isinstance(result, drt.CacheWriteError) and isinstance(result.exception, drt.CacheExistsError)
    assert result.exception.kind == "being-written" and result.exception.path == str(base / "same")
    assert f"is being written by another process ({first.pid} on " in result.message
    assert source.iterations == 0
    (tmp_path / "go").touch()
    assert read_report(first)[0] == "CacheWriteSuccess"
    first.communicate(timeout=HANG_SECONDS)
    assert [sample.data for sample in subject.open_dataset(base / "same", validate=True)] == [b"first", b"one"]
    assert subject.leftovers(base) == []


def test_other_threads_run_while_one_waits(base: Path, tmp_path: Path) -> None:
    first = want(base, "one", until=tmp_path / "go")
    assert read_report(first) == "iterating"
    outcome: list[Any] = []
    waiting = threading.Thread(target=lambda: outcome.append(reuse(base, CountingSource("same", ten_rows()))))
    waiting.start()
    # Only a thread that runs can let the other process go on.
    (tmp_path / "go").touch()
    waiting.join(HANG_SECONDS)
    assert len(outcome[0].dataset) == 2
    first.communicate(timeout=HANG_SECONDS)


@pytest.mark.parametrize("num_processes", [0, 1])
def test_two_that_want_a_stale_cache_rebuilt_rebuild_it_once(base: Path, tmp_path: Path, num_processes: int) -> None:
    subject.write_results(base, Printed("v1", rows=2))
    iterated = tmp_path / "iterated"
    iterated.mkdir()
    threads, outcomes = [], []
    for number in range(3):
        source = Acting("a", announce_and_sleep, iterated, str(number), 0.3)
        source.fingerprint = "v2"  # type: ignore[attr-defined]
        run = lambda source=source: outcomes.append(reuse(base, source, on_stale="rebuild", num_processes=num_processes))  # noqa: E731
        threads.append(threading.Thread(target=run))
        threads[-1].start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert [len(outcome.dataset) for outcome in outcomes] == [10] * 3
    assert len(list(iterated.iterdir())) == 1
    assert stored(base) == "v2" and subject.leftovers(base) == []


def test_a_claim_that_a_dead_writers_child_still_holds_delays_others_only_while_it_lives(base: Path, tmp_path: Path) -> None:
    script = """
from pathlib import Path
from support import drt
from support.process_sources import Acting, fork_and_die
source = Acting("same", fork_and_die, Path(ARGS["pids"]), "child")
drt.write_results(ARGS["base"], source)
"""
    process = start_script(
        script, {"base": str(base), "pids": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    child = int(wait_for(tmp_path / "child"))
    process.wait(HANG_SECONDS)
    (result,) = subject.write_results(base, ListSource("same", ten_rows()))
    assert isinstance(result, drt.CacheWriteError) and "being written" in result.message
    os.kill(child, signal.SIGKILL)
    assert len(reuse(base, ListSource("same", ten_rows())).dataset) == 10
    assert subject.leftovers(base) == []
