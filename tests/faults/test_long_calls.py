"""Ctrl-C in calls that work for long without running Python code: they end well before they would have, and leave nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import drt as subject
from support.child import run_script
from support.sources import mini, noise

pytestmark = [pytest.mark.slow, pytest.mark.ours]

LONG_CALLS = {
    "verifying one cache": "lambda: drt.open_dataset(paths[0], validate=True)",
    "verifying several caches": "lambda: drt.open_dataset(paths, validate=True, num_workers=1)",
    "reusing a cache that is verified": "reuse",
    "reading many samples": "lambda: dataset._native.get_many(pairs)",
}
CALLING = """
import signal, time
from pathlib import Path
from support import drt, sources

paths = [Path(path) for path in ARGS["paths"]]
dataset = drt.open_dataset(ARGS["small"])
pairs = dataset.get_metadata().select("cache_id", "sample_id").rows() * 40
runtime = drt.runtime()

def reuse():
    source, base = sources.ListSource(paths[0].name, []), paths[0].parent
    config, reader = drt.writer_config(validate_cache=True), drt.reader_config()
    runtime.from_cache_sources(source, base, reader_config=reader, writer_config=config)

def timed(action):
    start = time.perf_counter()
    try:
        action()
        end = "finished"
    except KeyboardInterrupt:
        end = "interrupted"
    return end, time.perf_counter() - start

action = {action}
whole = min(timed(action)[1] for _ in range(3))
signal.signal(signal.SIGALRM, signal.default_int_handler)
shares = []
for _ in range(10):
    signal.setitimer(signal.ITIMER_REAL, whole / 10)
    end, seconds = timed(action)
    signal.setitimer(signal.ITIMER_REAL, 0)
    shares.append(seconds / whole)
    if end == "interrupted" and shares[-1] < 0.75:
        break
report([end, shares, timed(action)[0]])
"""


@pytest.fixture(scope="module")
def long_caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Caches whose checksums take a while, and one of many samples."""
    base = tmp_path_factory.mktemp("long")
    payload = noise("long", 8 << 20)
    paths = [subject.write(base, f"large-{i}", [(payload, {"i": i}) for i in range(12)]) for i in range(3)]
    return {"paths": [str(path) for path in paths], "small": str(subject.write(base, "small", mini(5000)))}


@pytest.mark.parametrize("action", LONG_CALLS.values(), ids=LONG_CALLS)
def test_a_real_interrupt_ends_a_long_call_well_before_its_end(long_caches: dict[str, Any], action: str) -> None:
    script = CALLING.replace("{action}", action)
    end, shares, again = run_script(script, long_caches)
    assert end == "interrupted", shares
    assert min(shares) < 0.75, shares
    assert again == "finished"


@pytest.mark.parametrize("at", ["metadata.arrow", "manifest.json"])
def test_a_real_interrupt_ends_the_end_of_a_write(base: Path, at: str) -> None:
    script = """
import os, signal, threading, time
from pathlib import Path
from support import drt, sources

base = Path(ARGS["base"])
rows = [(b"x" * 100, {"text": f"text number {i}", "i": i}) for i in range(100_000)]

def when_it_appears():
    while not list(base.glob("tmp/*.work/" + ARGS["at"])):
        pass
    os.kill(os.getpid(), signal.SIGINT)

watch = threading.Thread(target=when_it_appears, daemon=True)
watch.start()
try:
    drt.write_results(base, sources.ListSource("a", rows))
    report("written")
except KeyboardInterrupt:
    report("interrupted")
"""
    outcome = run_script(script, {"base": str(base), "at": at})
    assert outcome in ("interrupted", "written")
    assert subject.leftovers(base) == []
    if (base / "a").exists():  # the interrupt came when there was nothing more to stop, or the name had only to be made durable
        assert len(subject.open_dataset(base / "a", validate=True).get_metadata()) == 100_000
    else:
        assert outcome == "interrupted"
