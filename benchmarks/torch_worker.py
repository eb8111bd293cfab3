"""One competitor of `bench_torch.py`: the PyTorch loader of the installed `dataset_rt`, ours or the public package.

Driven by JSON lines as `worker.py` is. Loading processes import this file, so it imports next to nothing itself.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import time
import warnings
from pathlib import Path
from typing import Any

from worker import Library, private_bytes, serve

BATCH = 64


def identity(batch: Any) -> Any:
    return batch


def decode(sample: Any) -> int:
    """A transform that looks at everything a sample has."""
    return sum(sample.data) + sample.metadata["label"]


class Loader(Library):
    """The library's loaders, and a bare torch loader over a list beside them."""

    def __init__(self) -> None:
        super().__init__()
        warnings.simplefilter("ignore")
        import torch.utils.data

        self.torch = torch
        self.loaders: dict[str, Any] = {}

    def _loader(self, dataset: Any, num_workers: int, **options: Any) -> Any:
        return dataset.to_torch_dataloader(
            batch_size=BATCH, seed=1, num_workers=num_workers, collate_fn=identity, verbose=False, **options
        )

    def _bare(self, num_workers: int) -> Any:
        return self.torch.utils.data.DataLoader(
            list(range(100 * BATCH)), BATCH, num_workers=num_workers, collate_fn=identity, multiprocessing_context="spawn"
        )

    def make(self, name: str, num_workers: int, samples: int) -> int:
        """Make a loader over an open dataset, and read one pass that is not timed."""
        dataset = self.datasets[f"{name}/uniform"]
        loader = self.loaders[name] = self._loader(dataset, num_workers, samples_per_epoch=samples)
        for _ in loader:
            pass
        return len(loader)

    def one_pass(self, name: str) -> float:
        """Seconds of one pass over whole batches."""
        start = time.perf_counter()
        for _ in self.loaders[name]:
            pass
        return time.perf_counter() - start

    def first_batch(self, name: str, num_workers: int, bare: bool) -> float:
        """Seconds from nothing to the first batch, with processes that are spawned for it."""
        start = time.perf_counter()
        loader = self._bare(num_workers) if bare else self._loader(self.datasets[f"{name}/uniform"], num_workers)
        passing = iter(loader)
        next(passing)
        return time.perf_counter() - start  # the end of the processes, as `passing` goes, does not count

    def processes(self, name: str, num_workers: int, kind: str) -> dict[str, int]:
        """Memory of all loading processes together that no other process maps, after a thousand batches each.

        The kind is `bare` for torch alone, `rows` for a loader whose processes find out what to read, and `decoding` for one
        whose processes read and decode it.
        """
        samples = 1000 * BATCH * num_workers
        loader: Any = self._bare(num_workers)
        if kind != "bare":
            work = {"sample_transform_fn": decode} if kind == "decoding" else {}
            loader = self._loader(self.datasets[f"{name}/weighted"], num_workers, samples_per_epoch=samples, **work)
        passing = iter(loader)
        for _ in range(len(loader) - 3 * num_workers):  # all of them are alive and at work
            next(passing)
        kinds = {"private": "Private_", "dirty": "Private_Dirty"}
        pids = [process.pid for process in multiprocessing.active_children()]
        assert len(pids) == num_workers, pids
        return {kind: sum(private_bytes(pid, field) for pid in pids) for kind, field in kinds.items()}

    def weigh(self, base: str, name: str) -> int:
        """Open a cache and give its rows random weights."""
        import polars as pl

        dataset = self.runtime.cached_dataset([Path(base) / name], reader_config=self.drt.ReaderConfig(seed=1))
        table, rng = dataset.get_metadata(), random.Random(2)
        dataset.update_metadata(table.with_columns(pl.Series("weight", [rng.uniform(0.1, 1.0) for _ in range(len(table))])))
        self.datasets[f"{name}/weighted"] = dataset
        return len(dataset)

    def forget(self) -> None:
        self.loaders.clear()
        gc.collect()
        super().forget()


if __name__ == "__main__":
    serve(Loader())
