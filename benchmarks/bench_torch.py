"""Compare the PyTorch loader with the public package's, in the manner of `bench_core.py`.

Batches of 64 that a collate function gives back as they are, shuffled. Also: the time to the first batch with spawned
processes, and what processes cost in memory, each beside a bare torch loader over a list.

    python benchmarks/bench_torch.py             # about ten minutes
    python benchmarks/bench_torch.py --quick     # small, to see that it runs
    python benchmarks/bench_torch.py --cases loader-0    # by prefix: loader-0, loader-2, first-batch, memory
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench_core import HERE, Bench, Competitor, machine

# Rows, bytes of a payload, and samples of a pass: ours without and with processes, the public package's without and with.
FULL = {
    "256B": (200_000, 256, {"ours": (400_000, 100_000), "oracle": (20_000, 20_000)}),
    "4KiB": (50_000, 4096, {"ours": (200_000, 100_000), "oracle": (20_000, 20_000)}),
    "256KiB": (2_000, 262_144, {"ours": (8_000, 8_000), "oracle": (4_000, 1_500)}),
}
QUICK = {
    "256B": (5_000, 256, {"ours": (5_000, 5_000), "oracle": (5_000, 5_000)}),
    "4KiB": (2_000, 4096, {"ours": (2_000, 2_000), "oracle": (2_000, 2_000)}),
    "256KiB": (200, 262_144, {"ours": (640, 640), "oracle": (640, 640)}),
}


class TorchCompetitor(Competitor):
    program = "torch_worker.py"


class TorchBench(Bench):
    def passes(self) -> None:
        sizes = QUICK if self.options.quick else FULL
        for label, (count, size, samples) in sizes.items():
            for number, num_workers in enumerate((0, 2)):
                case = f"loader-{num_workers}-{label}"
                if not self.wants(case):
                    continue
                for each in self.competitors:
                    base = self.base(each)
                    each.ask("build", base=base, name=label, count=count, size=size)
                    each.ask("open", base=base, name=label, mode="uniform")
                    each.ask("make", name=label, num_workers=num_workers, samples=samples[each.name][number])
                rates = self.in_turns(
                    2 if self.options.quick else self.options.rounds,
                    self.competitors,
                    lambda each, n=number: samples[each.name][n] / each.ask("one_pass", name=label),  # noqa: B023
                )
                self.record(case, "samples/s", rates, higher_is_better=True, payload_bytes=size, num_workers=num_workers)
                for each in self.competitors:
                    each.ask("forget")
        self.clear()

    def first_batches(self) -> None:
        if not self.wants("first-batch"):
            return
        for each in self.competitors:
            each.ask("build", base=self.base(each), name="few", count=1000, size=256)
            each.ask("open", base=self.base(each), name="few", mode="uniform")
        rounds = 2 if self.options.quick else 5
        both = self.in_turns(
            rounds,
            self.competitors,
            lambda each: {bare: each.ask("first_batch", name="few", num_workers=2, bare=bare) for bare in (True, False)},
        )
        for bare, case in ((True, "first-batch-bare-torch"), (False, "first-batch")):
            seconds = {name: [one[bare] for one in each] for name, each in both.items()}
            self.record(case, "s", seconds, higher_is_better=False, num_workers=2)

    def process_memory(self) -> None:
        if not self.wants("memory"):
            return
        for each in self.competitors:
            each.ask("build", base=self.base(each), name="many", count=self.many, size=64)
            each.ask("weigh", base=self.base(each), name="many")
        kinds = ("bare", "rows", "decoding")
        seen = {
            each.name: {kind: each.ask("processes", name="many", num_workers=4, kind=kind) for kind in kinds}
            for each in self.competitors
        }
        for kind in kinds[1:]:
            for memory in ("private", "dirty"):
                above = {name: [each[kind][memory] - each["bare"][memory]] for name, each in seen.items()}
                case = f"memory-of-4-processes-{kind}-{memory}"
                self.record(case, "bytes", above, higher_is_better=False, rows=self.many)

    def run(self) -> None:
        self.passes()
        self.first_batches()
        self.process_memory()


def oracle_python() -> str:
    from make_env import ensure_env

    return str(ensure_env(torch=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--cases", nargs="+", metavar="PREFIX", help="only cases whose name begins so")
    parser.add_argument("--rounds", type=int, default=5, help="passes of each loader (default 5)")
    parser.add_argument("--dir", type=Path, help="folder for caches (default: a temporary one)")
    parser.add_argument("--who", nargs="+", default=["ours", "oracle"], choices=["ours", "oracle"], help="competitors")
    parser.add_argument("--name", help="name of the run's file (default: date and time)")
    options = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="drt-bench-", dir=options.dir))
    facts: dict[str, Any] = machine(folder)
    pythons = {"ours": lambda: sys.executable, "oracle": oracle_python}
    competitors = [TorchCompetitor(name, pythons[name](), "loader").start() for name in options.who]
    bench = TorchBench(options, competitors, folder)
    start = time.perf_counter()
    try:
        bench.run()
    finally:
        for competitor in competitors:
            competitor.stop()
        shutil.rmtree(folder, ignore_errors=True)
    facts["load_average_after"] = os.getloadavg()
    asked = {key: getattr(options, key) for key in ("quick", "cases", "rounds", "who")}
    now = datetime.now(timezone.utc)
    run = {"date": now.date().isoformat(), "options": asked, "machine": facts, "seconds": time.perf_counter() - start}
    target = HERE / "runs" / f"{options.name or now.strftime('%Y-%m-%d-%H%M%S')}-torch.json"
    target.write_text(json.dumps({**run, "results": bench.results}, indent=1) + "\n")
    print(f"written to {target.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
