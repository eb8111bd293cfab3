"""Ctrl-C and exits: they pass through at once, nothing half-made stays, finished work is kept."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import HANG_SECONDS, read_report, start_script
from support.sources import CountingSource, ListSource, mini, ten_rows

pytestmark = pytest.mark.quick


def raising(error: BaseException, after: int = 3) -> Iterator[Any]:
    yield from mini(after)
    raise error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("after", [0, 3, 3000])
def test_a_source_that_is_interrupted_stops_the_call(base: Path, kind: type[BaseException], after: int) -> None:
    later = CountingSource("later", ten_rows())
    written = [ListSource("done", ten_rows()), ListSource("running", raising(kind(), after)), later]
    with pytest.raises(kind):
        subject.write_results(base, written)
    assert subject.ids(subject.open_dataset(base / "done")) == list(range(10))
    assert not (base / "running").exists() and not (base / "later").exists()
    assert later.iterations == 0
    assert subject.leftovers(base) == []
    assert isinstance(subject.write_results(base, ListSource("running", mini(5)))[0], drt.CacheWriteSuccess)


@pytest.mark.ours
@pytest.mark.parametrize("code", [3, 0, None, "a reason"])
def test_an_exit_keeps_its_code(base: Path, code: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        subject.write_results(base, ListSource("a", raising(SystemExit(code))))
    assert caught.value.code == code and type(caught.value.code) is type(code)


@pytest.mark.ours
def test_an_interrupt_is_the_very_object_that_was_raised(base: Path) -> None:
    class Mine(KeyboardInterrupt):
        pass

    error = Mine("hello")
    with pytest.raises(KeyboardInterrupt) as caught:
        subject.write_results(base, ListSource("a", raising(error)))
    assert caught.value is error and caught.value.__traceback__ is not None


def test_an_interrupted_source_is_closed(base: Path) -> None:
    seen = []

    def rows() -> Iterator[Any]:
        try:
            yield from raising(KeyboardInterrupt())
        finally:
            seen.append("closed")

    with pytest.raises(KeyboardInterrupt):
        subject.write_results(base, ListSource("a", rows()))
    assert seen == ["closed"]


def test_from_cache_sources_passes_interrupts_through(base: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        subject.runtime().from_cache_sources(
            ListSource("a", raising(KeyboardInterrupt())), base,
            reader_config=subject.reader_config(), writer_config=subject.writer_config(),
        )  # fmt: skip
    assert not (base / "a").exists() and subject.leftovers(base) == []


SOURCES = {
    "slow": "time.sleep(0.05)",
    "sleeping": "time.sleep(1000) if i == 20 else None",
    "fast": "pass",
    "large": "payload = bytes(1 << 20)",
}
WRITING = """
import time
from support import drt
def rows():
    payload = b"x" * 100
    i = 0
    while True:
        if i == 10:
            report("running")
        {body}
        yield payload, {{"i": i}}
        i += 1
class Source:
    name = "endless"
    def __iter__(self):
        try:
            yield from rows()
        finally:
            report("closed")
try:
    drt.runtime().write_cache([Source()], ARGS["base"], writer_config=drt.writer_config(algo=ARGS["algo"]))
except KeyboardInterrupt:
    report("interrupted")
"""


def interrupt(process: subprocess.Popen[str], delay: float) -> tuple[list[Any], float]:
    """Send SIGINT after a delay and collect what is still reported; also returns how long the end took."""
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err[-2000:]
    import json

    return [json.loads(line[8:]) for line in out.splitlines() if line.startswith("@report ")], time.monotonic() - start


@pytest.mark.parametrize("algo", ["none", "lz4"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_real_interrupt_ends_a_write(base: Path, source: str, algo: str) -> None:
    subject.write(base, "done", ten_rows())
    process = start_script(WRITING.format(body=SOURCES[source]), {"base": str(base), "algo": algo})
    assert read_report(process) == "running"
    reports, seconds = interrupt(process, 0.3)
    assert "interrupted" in reports and "closed" in reports
    assert seconds < 60
    assert not (base / "endless").exists() and subject.leftovers(base) == []
    assert subject.ids(subject.open_dataset(base / "done")) == list(range(10))


READING = {
    "a for loop": "for sample in dataset: pass",
    "a loop in C": "import collections; collections.deque(dataset, maxlen=0)",
    "a sum in C": "sum(map(len, dataset))",
}


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
@pytest.mark.parametrize("how", READING)
def test_a_real_interrupt_ends_a_read(base: Path, how: str, algo: str, io: str) -> None:
    path = subject.write(base, "a", mini(500), algo=algo)
    script = f"""
from pathlib import Path
from support import drt
dataset = drt.open_dataset(Path(ARGS["path"]), io=ARGS["io"], shuffle=True)
list(dataset)
dataset.set_epoch_len(2 ** 40)
report("running")
try:
    {READING[how]}
except KeyboardInterrupt:
    dataset.set_epoch_len(3)
    report(["interrupted", len(list(dataset))])
"""
    process = start_script(script, {"path": str(path), "io": io})
    assert read_report(process) == "running"
    reports, seconds = interrupt(process, 0.3)
    assert reports[-1] == ["interrupted", 3]
    assert seconds < 60


def test_a_handler_that_does_not_raise_lets_a_write_go_on(base: Path) -> None:
    script = """
import signal, time
from support import drt, sources
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
def rows():
    for i in range(60):
        if i == 5:
            report("running")
        time.sleep(0.02)
        yield b"x", {"i": i}
results = drt.runtime().write_cache([sources.ListSource("a", rows())], ARGS["base"], writer_config=drt.writer_config())
report([type(results[0]).__name__, len(seen)])
"""
    process = start_script(script, {"base": str(base)})
    assert read_report(process) == "running"
    reports, _ = interrupt(process, 0.2)
    assert reports == [["CacheWriteSuccess", 1]]
    assert len(list(subject.open_dataset(base / "a"))) == 60
