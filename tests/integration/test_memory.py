"""What reading costs in memory and in bytes read. Everything is measured in a child process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import drt as subject
from support.child import run_script
from support.sources import noise

pytestmark = pytest.mark.slow

WATCH = """
import threading, time
from pathlib import Path
from support import drt

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

def rchar():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))

def mapped(part):
    "Resident bytes of mappings whose file name holds a text."
    total, inside = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if not line.split()[0].endswith(":"):
                inside = part in line
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total

class Peak(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.stopped = 0, threading.Event()
        self.start()
    def run(self):
        while not self.stopped.wait(0.002):
            self.peak = max(self.peak, anonymous())
    def stop(self):
        self.stopped.set(); self.join()
        return self.peak
"""


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_slow_consumer_is_not_buried_in_samples(base: Path, algo: str, io: str) -> None:
    prefetch, workers, size = 8, 2, 1 << 20
    rows = ((noise(f"slow-{i}", size), {"i": i}) for i in range(150))
    path = subject.write(base, "a", rows, algo=algo)
    script = (
        WATCH
        + """
dataset = drt.open_dataset(Path(ARGS["path"]), num_workers=ARGS["workers"], prefetch=ARGS["prefetch"], io=ARGS["io"])
next(iter(dataset))
idle, watch, seen = anonymous(), Peak(), 0
for sample in dataset:
    seen += len(sample.data)
    time.sleep(0.005)
report([seen, watch.stop() - idle])
"""
    )
    args = {"path": str(path), "workers": workers, "prefetch": prefetch, "io": io}
    seen, growth = run_script(script, args)
    assert seen == 150 * size
    assert growth < (prefetch + workers + 4) * size * 2


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_filtered_rows_cost_nothing(base: Path, io: str) -> None:
    path = subject.write(base, "a", ((noise(f"filtered-{i}", 65536), {"i": i}) for i in range(1000)))
    script = (
        WATCH
        + """
dataset = drt.open_dataset(Path(ARGS["path"]), io=ARGS["io"])
table = dataset.get_metadata()
dataset.update_metadata(table[[(i * 97) % 1000 for i in range(10)]])
before = rchar()
rows = [(sample.sample_id, len(sample.data)) for sample in dataset]
report([rows, rchar() - before, mapped("/shards/")])
"""
    )
    rows, read, resident = run_script(script, {"path": str(path), "io": io})
    assert rows == [[(i * 97) % 1000, 65536] for i in range(10)]
    assert read < 2 << 20
    assert resident < 4 << 20  # of 64 MiB; the kernel maps neighbouring pages of its own accord


def test_opening_and_reading_do_not_hold_a_copy_of_the_data_set(base: Path) -> None:
    """100,000 rows: index, metadata and payloads are mapped, so private memory stays far below their size."""
    rows = ((b"%064d" % i, {"i": i, "f": i / 8, "s": f"a split whose name takes room {i % 1000}"}) for i in range(100_000))
    path = subject.write(base, "a", rows)
    script = (
        WATCH
        + """
first = drt.open_dataset(Path(ARGS["path"]).parent / "small")
list(first); first.get_metadata()
before = anonymous()
dataset = drt.open_dataset(Path(ARGS["path"]))
opened = anonymous() - before
for sample in dataset:
    pass
report([opened, anonymous() - before])
"""
    )
    subject.write(base, "small", [(b"x", {"i": 1, "f": 0.5, "s": "t"})])
    opened, read = run_script(script, {"path": str(path)})
    assert opened < 4_000_000
    assert read < 12_000_000


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_fast_source_is_not_pulled_far_ahead_of_the_disk(base: Path, algo: str) -> None:
    """400 payloads of 1 MiB: what waits between source and disk is far less than what was yielded."""
    script = (
        WATCH
        + """
from support import sources
drt.write(Path(ARGS["base"]), "small", sources.mini(10), algo=ARGS["algo"])
payload = sources.noise("fast", 1 << 20)
before, watch = anonymous(), Peak()
drt.write(Path(ARGS["base"]), "a", ((payload[i:] + payload[:i], {"i": i}) for i in range(400)), algo=ARGS["algo"])
report(watch.stop() - before)
"""
    )
    assert run_script(script, {"base": str(base), "algo": algo}) < 100 << 20


@pytest.mark.ours
def test_writing_does_not_hold_a_copy_of_the_metadata_per_row(base: Path) -> None:
    """300,000 rows of three fields: columns take about 30 bytes a row, Python objects would take 400."""
    script = (
        WATCH
        + """
from support import sources
drt.write(Path(ARGS["base"]), "small", sources.mini(10))
before, watch = anonymous(), Peak()
rows = ((b"x" * 16, {"i": i, "f": i / 8, "s": "train"}) for i in range(300_000))
drt.write(Path(ARGS["base"]), "a", rows)
report(watch.stop() - before)
"""
    )
    assert run_script(script, {"base": str(base)}) < 40_000_000
