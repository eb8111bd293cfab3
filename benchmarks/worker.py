"""One competitor of `bench_core.py`, alive in a process of its own and driven by JSON lines.

    python worker.py library     the installed `dataset_rt`, ours or the public package
    python worker.py reference   twenty lines of Python over a numpy memmap
    python worker.py bare        a C loop that only builds the objects (needs `cc` and Python's headers)

A request names a method of the competitor and its arguments; the answer is `{"ok": value}` or `{"error": text}`.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SPLITS = ["train", "val", "test"]


def payload_pool(size: int) -> list[bytes]:
    """64 distinct payloads that do not compress; rows share them, so that sources cost little memory."""
    rng = random.Random(size)
    return [rng.randbytes(size) for _ in range(64)]


def rows(count: int, size: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The data set of every case: payloads of one size, and an int, a float and a text field."""
    pool, rng = payload_pool(size), random.Random(count)
    for number in range(count):
        metadata = {"label": number % 1000, "score": rng.random(), "split": SPLITS[number % 3]}
        yield pool[number % 64], metadata


def private_bytes(pid: int | str = "self", field: str = "Private_") -> int:
    """Memory of a process that no other process maps right now.

    `Private_` counts clean pages of mapped files too while only one process maps them, although the kernel may drop
    them at any time; `Private_Dirty` is what is really this process's own.
    """
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


class Library:
    """`dataset_rt`, whichever is installed."""

    def __init__(self) -> None:
        import dataset_rt

        self.drt = dataset_rt
        self.runtime = dataset_rt.DatasetRuntime(num_workers=2)
        self.quiet = dataset_rt.WriterConfig(show_progress=False)
        self.datasets: dict[str, Any] = {}
        self.inputs: dict[tuple[int, int], list[Any]] = {}

    def _source(self, name: str, content: Any) -> Any:
        return type("Source", (), {"name": name, "__iter__": lambda self: iter(content)})()

    def _write(self, base: str, name: str, content: Any) -> float:
        start = time.perf_counter()
        (result,) = self.runtime.write_cache(self._source(name, content), base, writer_config=self.quiet)
        elapsed = time.perf_counter() - start
        assert isinstance(result, self.drt.CacheWriteSuccess), result
        return elapsed

    def build(self, base: str, name: str, count: int, size: int) -> float:
        """Write a cache for the read cases, unless it is there."""
        if (Path(base) / name / "manifest.json").exists():
            return 0.0
        return self._write(base, name, (self.drt.CacheInput(*row) for row in rows(count, size)))

    def open(self, base: str, name: str, mode: str) -> int:
        """Open a cache for one of the orders `uniform`, `weighted`, `ordered`; keep it open under that name."""
        config = self.drt.ReaderConfig(seed=1, shuffle=mode != "ordered")
        dataset = self.runtime.cached_dataset([Path(base) / name], reader_config=config)
        if mode == "weighted":
            import polars as pl

            table, rng = dataset.get_metadata(), random.Random(2)
            weights = pl.Series("weight", [rng.uniform(0.1, 1.0) for _ in range(len(table))])
            dataset.update_metadata(table.with_columns(weights))
        self.datasets[f"{name}/{mode}"] = dataset
        return len(dataset)

    def read(self, name: str, mode: str) -> float:
        """Seconds for one pass of a plain loop over whole samples."""
        dataset = self.datasets[f"{name}/{mode}"]
        start = time.perf_counter()
        for _sample in dataset:
            pass
        return time.perf_counter() - start

    def prepare_inputs(self, count: int, size: int) -> int:
        self.inputs = {(count, size): [self.drt.CacheInput(*row) for row in rows(count, size)]}
        return count

    def write(self, base: str, count: int, size: int) -> float:
        """Seconds to write a source that is already a list in memory."""
        gc.collect()
        elapsed = self._write(base, "written", self.inputs[count, size])
        shutil.rmtree(Path(base) / "written")
        return elapsed

    def forget(self) -> None:
        self.datasets.clear()
        self.inputs.clear()
        gc.collect()

    def life(self, base: str, name: str) -> dict[str, float]:
        """Open, table, and memory figures of one fresh process; call it once per process."""
        import polars as pl

        seen: dict[str, float] = {}
        config = self.drt.ReaderConfig(seed=1)
        kinds = {"private": "Private_", "dirty": "Private_Dirty"}
        before = {kind: private_bytes("self", field) for kind, field in kinds.items()}

        def grown(stage: str) -> None:
            for kind, field in kinds.items():
                now = private_bytes("self", field)
                seen[f"{kind}_{stage}"] = now - before[kind]
                before[kind] = now

        def timed(label: str, action: Any) -> Any:
            start = time.perf_counter()
            value = action()
            seen[label] = time.perf_counter() - start
            return value

        dataset = timed("open_s", lambda: self.runtime.cached_dataset([Path(base) / name], reader_config=config))
        grown("open")
        table = timed("get_metadata_first_s", dataset.get_metadata)
        grown("get_metadata")
        timed("get_metadata_second_s", dataset.get_metadata)
        rng = random.Random(3)
        weighted = table.with_columns(pl.Series("weight", [rng.uniform(0.1, 1.0) for _ in range(len(table))]))
        del table
        gc.collect()
        grown("making_weights")
        timed("update_metadata_s", lambda: dataset.update_metadata(weighted))
        grown("update_metadata")
        dataset.set_epoch_len(1000)
        timed("first_thousand_after_update_s", lambda: list(dataset))
        dataset.set_epoch_len(20000)
        for _sample in dataset:
            pass
        grown("read_20000")
        return seen

    def write_stream(self, base: str, count: int, size: int) -> float:
        """Seconds to write rows that a generator makes; the driver watches this process's memory meanwhile."""
        elapsed = self._write(base, "streamed", (self.drt.CacheInput(*row) for row in rows(count, size)))
        shutil.rmtree(Path(base) / "streamed")
        return elapsed


class Reference:
    """What one writes without a library: a flat payload file mapped by numpy, and three columns in lists."""

    def build(self, base: str, name: str, count: int, size: int) -> float:
        start = time.perf_counter()
        self.size, self.columns, self.orders = size, ([], [], []), {}  # type: ignore[var-annotated]
        Path(base).mkdir(parents=True, exist_ok=True)
        with open(f"{base}/{name}.bin", "wb") as file:
            for payload, metadata in rows(count, size):
                file.write(payload)
                for column, value in zip(self.columns, metadata.values(), strict=True):
                    column.append(value)
        import numpy

        self.payloads = numpy.memmap(f"{base}/{name}.bin", numpy.uint8, "r", shape=(count, size))
        return time.perf_counter() - start

    def open(self, base: str, name: str, mode: str) -> int:
        import numpy

        count, rng = len(self.columns[0]), numpy.random.default_rng(1)
        if mode == "uniform":
            order = rng.integers(0, count, count)
        elif mode == "weighted":
            weights = rng.uniform(0.1, 1.0, count)
            order = rng.choice(count, count, p=weights / weights.sum())
        else:
            order = numpy.arange(count)
        self.orders[mode] = order.tolist()
        return count

    def samples(self, mode: str) -> Iterator[Any]:
        labels, scores, splits = self.columns
        mapped, size = self.payloads.base, self.size  # the map itself: a slice of it is `bytes`, in one copy
        for row in self.orders[mode]:
            metadata = {"label": labels[row], "score": scores[row], "split": splits[row]}
            yield CachedSample(mapped[row * size : row * size + size], metadata, 0, row)

    def read(self, name: str, mode: str) -> float:
        start = time.perf_counter()
        for _sample in self.samples(mode):
            pass
        return time.perf_counter() - start

    def forget(self) -> None:
        self.__dict__.clear()


class Bare(Reference):
    """The same file through a C loop that does nothing but build the objects: the ceiling."""

    def __init__(self) -> None:
        import importlib.util
        import subprocess
        import sysconfig
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder) / f"bare_loop{sysconfig.get_config_var('EXT_SUFFIX')}"
            include = f"-I{sysconfig.get_path('include')}"
            source = Path(__file__).with_name("bare_loop.c")
            subprocess.run(["cc", "-O3", "-shared", "-fPIC", include, "-o", built, source], check=True)
            spec = importlib.util.spec_from_file_location("bare_loop", built)
            assert spec is not None and spec.loader is not None
            self.loop = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.loop)

    def read(self, name: str, mode: str) -> float:
        from array import array

        order = array("Q", self.orders[mode])
        iterator = self.loop.Loop(memoryview(self.payloads).cast("B"), self.size, order, *self.columns, CachedSample)
        start = time.perf_counter()
        for _sample in iterator:
            pass
        return time.perf_counter() - start

    def forget(self) -> None:
        loop = self.loop
        self.__dict__.clear()
        self.loop = loop


if sys.argv[1:] and sys.argv[1] in {"reference", "bare"}:
    from typing import NamedTuple

    class CachedSample(NamedTuple):
        data: bytes
        metadata: dict[str, Any]
        cache_id: int
        sample_id: int


def serve(competitor: Any) -> None:
    """Answer requests until the driver closes its end."""
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ok": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(competitor, request.pop("do"))(**request)}
        except Exception as error:  # the driver decides what a failed case means
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve({"library": Library, "reference": Reference, "bare": Bare}[sys.argv[1]]())
