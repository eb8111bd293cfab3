"""Compare the core of this library with the public package and with hand-written loops.

Every competitor lives in a process of its own and all of them stay alive; a round asks each in turn, and the turn
order rotates, so that a slow minute of the machine hits all alike. Medians over the rounds and ratios are printed,
and everything, raw figures included, is written to `benchmarks/runs/`. `benchmarks/README.md` says how to read it.

    python benchmarks/bench_core.py                       # everything, about a quarter of an hour
    python benchmarks/bench_core.py --quick               # small sizes, to see that it runs
    python benchmarks/bench_core.py --cases read write    # by prefix: read, write, open, memory, import
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "oracle"))
sys.path.insert(0, str(HERE))

from worker import private_bytes  # noqa: E402

MODES = ("uniform", "weighted", "ordered")
FULL = {"256B": (200_000, 256), "4KiB": (50_000, 4096), "256KiB": (4_000, 262_144)}
QUICK = {"256B": (10_000, 256), "4KiB": (4_000, 4096), "256KiB": (200, 262_144)}
IMPORT_CODE = "import time; t = time.perf_counter(); import dataset_rt; print(time.perf_counter() - t)"


class Competitor:
    """A worker process and the way to ask it."""

    program = "worker.py"

    def __init__(self, name: str, python: str, role: str) -> None:
        self.name, self.python, self.role = name, python, role
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Competitor:
        command = [self.python, str(HERE / self.program), self.role]
        # As on most machines, compiled modules are kept: importing torch from source alone takes seconds.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._answer()
        return self

    def _answer(self) -> Any:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def ask(self, do: str, **arguments: Any) -> Any:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    @contextmanager
    def fresh(self) -> Iterator[Competitor]:
        """The same competitor in a new process that ends with the block."""
        other = type(self)(self.name, self.python, self.role).start()
        try:
            yield other
        finally:
            other.stop()

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait()


class Bench:
    def __init__(self, options: argparse.Namespace, competitors: list[Competitor], folder: Path) -> None:
        self.options, self.competitors, self.folder = options, competitors, folder
        self.sizes = QUICK if options.quick else FULL
        self.many = 50_000 if options.quick else 1_000_000
        self.results: list[dict[str, Any]] = []

    @property
    def libraries(self) -> list[Competitor]:
        return [competitor for competitor in self.competitors if competitor.role == "library"]

    def wants(self, case: str) -> bool:
        return not self.options.cases or any(case.startswith(prefix) for prefix in self.options.cases)

    def in_turns(self, rounds: int, who: list[Competitor], action: Callable[[Competitor], Any]) -> dict[str, list[Any]]:
        """Ask everyone once per round; the one who begins changes from round to round."""
        seen: dict[str, list[Any]] = {competitor.name: [] for competitor in who}
        for number in range(rounds):
            for place in range(len(who)):
                competitor = who[(number + place) % len(who)]
                seen[competitor.name].append(action(competitor))
        return seen

    def record(self, case: str, unit: str, raw: dict[str, list[float]], *, higher_is_better: bool, **facts: Any) -> None:
        medians = {name: statistics.median(values) for name, values in raw.items()}
        entry = {"case": case, "unit": unit, "higher_is_better": higher_is_better, **facts}
        entry |= {"medians": medians, "raw": raw}
        if "ours" in medians and "oracle" in medians:
            ours, oracle = medians["ours"], medians["oracle"]
            first, second = (ours, oracle) if higher_is_better else (oracle, ours)
            entry["times_better"] = first / second if second else None
        self.results.append(entry)
        shown = "  ".join(f"{name} {show(value, unit)}" for name, value in medians.items())
        better = entry.get("times_better")
        print(f"{case:38} {shown}" + (f"  = {better:.2f} x" if better else ""), flush=True)

    def reads(self) -> None:
        rounds = 3 if self.options.quick else self.options.rounds
        for label, (count, size) in self.sizes.items():
            cases = [(mode, f"read-{mode}-{label}") for mode in MODES if self.wants(f"read-{mode}-{label}")]
            if not cases:
                continue
            for competitor in self.competitors:
                competitor.ask("build", base=self.base(competitor), name=label, count=count, size=size)
            for mode, case in cases:
                for competitor in self.competitors:
                    competitor.ask("open", base=self.base(competitor), name=label, mode=mode)
                    competitor.ask("read", name=label, mode=mode)  # warm
                one_pass = functools.partial(Competitor.ask, do="read", name=label, mode=mode)
                seconds = self.in_turns(rounds, self.competitors, one_pass)
                rates = {name: [count / value for value in values] for name, values in seconds.items()}
                self.record(case, "samples/s", rates, higher_is_better=True, samples=count, payload_bytes=size)
            for competitor in self.competitors:
                competitor.ask("forget")
            self.clear()

    def writes(self) -> None:
        rounds = 2 if self.options.quick else max(3, self.options.rounds // 2)
        places = {"disk": self.folder}
        if os.access("/dev/shm", os.W_OK):
            places["shm"] = Path(tempfile.mkdtemp(prefix="drt-bench-", dir="/dev/shm"))
        try:
            for label, (count, size) in self.sizes.items():
                cases = [(place, f"write-{place}-{label}") for place in places if self.wants(f"write-{place}-{label}")]
                if not cases:
                    continue
                for library in self.libraries:
                    library.ask("prepare_inputs", count=count, size=size)
                for place, case in cases:
                    one_write = functools.partial(self.write, target=places[place], count=count, size=size)
                    seconds = self.in_turns(rounds, self.libraries, one_write)
                    rates = {name: [count / value for value in values] for name, values in seconds.items()}
                    self.record(
                        case, "rows/s", rates, higher_is_better=True, samples=count, payload_bytes=size,
                        megabytes_per_second={n: statistics.median(v) * size / 1e6 for n, v in rates.items()},
                    )  # fmt: skip
                for library in self.libraries:
                    library.ask("forget")
        finally:
            if "shm" in places:
                shutil.rmtree(places["shm"])

    @staticmethod
    def write(library: Competitor, *, target: Path, count: int, size: int) -> float:
        base = target / library.name
        base.mkdir(exist_ok=True)
        os.sync()  # dirty pages of earlier rounds are nobody's business
        return library.ask("write", base=str(base), count=count, size=size)

    def opens(self) -> None:
        names = {
            "open_s": ("open-many-rows", "s"),
            "get_metadata_first_s": ("open-get_metadata-first", "s"),
            "get_metadata_second_s": ("open-get_metadata-second", "s"),
            "update_metadata_s": ("open-update_metadata", "s"),
            "first_thousand_after_update_s": ("open-first-1000-after-update", "s"),
        }
        for kind in ("private", "dirty"):
            for stage in ("open", "get_metadata", "update_metadata", "read_20000"):
                names[f"{kind}_{stage}"] = (f"open-{kind}-memory-{stage}", "bytes")
        if not any(self.wants(case) for case, _ in names.values()):
            return
        for library in self.libraries:
            library.ask("build", base=self.base(library), name="many", count=self.many, size=64)
            library.ask("forget")

        def life(library: Competitor) -> dict[str, float]:
            with library.fresh() as other:
                return other.ask("life", base=self.base(library), name="many")

        lives = self.in_turns(2 if self.options.quick else 5, self.libraries, life)
        for key, (case, unit) in names.items():
            raw = {name: [one[key] for one in each] for name, each in lives.items()}
            self.record(case, unit, raw, higher_is_better=False, rows=self.many)
        self.clear()

    def memory(self) -> None:
        if not self.wants("memory-write-peak"):
            return

        def peak(library: Competitor) -> dict[str, float]:
            with library.fresh() as other:
                assert other.process is not None
                idle = private_bytes(other.process.pid)
                watch = Watch(other.process.pid)
                seconds = other.ask("write_stream", base=self.base(library), count=self.many, size=64)
                return {"peak": watch.stop() - idle, "rate": self.many / seconds}

        seen = self.in_turns(1 if self.options.quick else 2, self.libraries, peak)
        for key, case, unit, higher in (
            ("peak", "memory-write-peak", "bytes", False),
            ("rate", "memory-write-stream-rate", "rows/s", True),
        ):
            raw = {name: [one[key] for one in each] for name, each in seen.items()}
            self.record(case, unit, raw, higher_is_better=higher, rows=self.many, payload_bytes=64)

    def imports(self) -> None:
        if not self.wants("import-time"):
            return

        def one(library: Competitor) -> float:
            done = subprocess.run([library.python, "-c", IMPORT_CODE], capture_output=True, text=True, check=True)
            return float(done.stdout)

        raw = self.in_turns(3 if self.options.quick else 9, self.libraries, one)
        self.record("import-time", "s", raw, higher_is_better=False)

    def base(self, competitor: Competitor) -> str:
        return str(self.folder / competitor.name)

    def clear(self) -> None:
        for entry in self.folder.iterdir():
            shutil.rmtree(entry)

    def run(self) -> None:
        self.imports()
        self.reads()
        self.writes()
        self.opens()
        self.memory()


class Watch(threading.Thread):
    """Follow the private memory of another process; `stop` returns its peak."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.done = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.peak = max(self.peak, private_bytes(self.pid))

    def stop(self) -> int:
        self.done.set()
        self.join()
        return self.peak


def show(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    if unit == "s":
        return f"{value * 1e3:.2f} ms"
    return f"{value / 1e6:.3f} M{unit}" if value >= 1e6 else f"{value / 1e3:.1f} k{unit}"


def machine(folder: Path) -> dict[str, Any]:
    """What a reader of the figures has to know; no host name and no path."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": kind,
        "load_average_before": os.getloadavg(),
    }


def choose(options: argparse.Namespace) -> list[Competitor]:
    known = {
        "ours": lambda: Competitor("ours", options.ours, "library"),
        "oracle": lambda: Competitor("oracle", oracle_python(), "library"),
        "reference": lambda: Competitor("reference", options.ours, "reference"),
        "bare": lambda: Competitor("bare", options.ours, "bare"),
    }
    return [known[name]().start() for name in options.who]


def oracle_python() -> str:
    from make_env import ensure_env

    return str(ensure_env())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    parser.add_argument("--cases", nargs="+", metavar="PREFIX", help="only cases whose name begins so")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the read cases (default 7)")
    parser.add_argument("--dir", type=Path, help="folder for caches, on the disk to measure (default: a temporary one)")
    parser.add_argument("--who", nargs="+", default=["ours", "oracle", "reference", "bare"], help="competitors")
    parser.add_argument("--ours", default=sys.executable, help="interpreter with our library (default: this one)")
    parser.add_argument("--name", help="name of the run's file (default: date and time)")
    options = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="drt-bench-", dir=options.dir))
    facts = machine(folder)
    competitors = choose(options)
    bench = Bench(options, competitors, folder)
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
    target = HERE / "runs" / f"{options.name or now.strftime('%Y-%m-%d-%H%M%S')}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**run, "results": bench.results}, indent=1) + "\n")
    print(f"written to {target.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
