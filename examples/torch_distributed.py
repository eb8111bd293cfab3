"""Two training processes share the passes over one cache.

    python examples/torch_distributed.py [CACHE_FOLDER]

Each rank sees its own part of 1,001 numbers in batches of 100, the same number of batches on both; what is too little for
that comes twice. A launcher such as torchrun would start the ranks in place of `main`.
"""

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt
import torch
import torch.distributed as dist

NUM_RANKS = 2


class NumberSource:
    """The numbers from 0 to 1000."""

    name = "numbers_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield each as eight bytes."""
        for number in range(1001):
            yield drt.CacheInput(data=number.to_bytes(8, "little"), metadata={"number": number})


def total(samples: list[drt.CachedSample]) -> torch.Tensor:
    """A batch is the sum of its numbers."""
    return torch.tensor(sum(int.from_bytes(sample.data, "little") for sample in samples))


def train(rank: int, cache: Path, meeting: str) -> None:
    """What each rank does: open the cache, read its share, add up over all ranks."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=NUM_RANKS)
    runtime = drt.DatasetRuntime(num_workers=1)
    dataset = runtime.cached_dataset([cache / NumberSource.name], reader_config=drt.ReaderConfig(seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one number comes twice
        loader = dataset.to_torch_dataloader(batch_size=100, shuffle=False, num_workers=0, collate_fn=total, verbose=False)
    for epoch in range(2):
        mine = torch.zeros((), dtype=torch.int64)
        for batch in loader:
            mine += batch
            dist.barrier()  # as a step of training would be: nobody has a batch more than the others
        dist.all_reduce(mine)
        if rank == 0:
            print(f"epoch {epoch}: {len(loader)} batches on each rank, the numbers add up to {mine}", flush=True)
    dist.destroy_process_group()


def main(cache: Path) -> None:
    """Write or reuse the cache, then start the ranks."""
    runtime = drt.DatasetRuntime(num_workers=1)
    result = runtime.from_cache_sources(NumberSource(), cache, reader_config=drt.ReaderConfig(seed=0))
    if not isinstance(result, drt.CacheSourcesDatasetSuccess):
        raise SystemExit(result.message)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(train, (cache, f"{folder}/meeting"), nprocs=NUM_RANKS, start_method="spawn")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "cache").resolve())
