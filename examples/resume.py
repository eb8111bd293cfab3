"""Training stops half way and goes on in another process, with another number of loading processes, as if nothing had been.

    python examples/resume.py [CACHE_FOLDER]

A run writes down which numbers each step saw and, every few steps, a checkpoint: its own progress and the loader's state. The
first run ends in the middle of a pass, between two checkpoints. The second one begins at the last checkpoint.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt

STEPS, STEPS_OF_FIRST_RUN, STEPS_BETWEEN_CHECKPOINTS = 30, 17, 5


class NumberSource:
    """The numbers from 0 to 99."""

    name = "hundred_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield each as text."""
        for number in range(100):
            yield drt.CacheInput(data=str(number).encode(), metadata={"number": number})


def numbers(samples: list[drt.CachedSample]) -> list[int]:
    """A batch is its numbers."""
    return [int(sample.data) for sample in samples]


def train(cache: Path, checkpoint: Path | None, stop: int, num_workers: int) -> list[list[int]]:
    """Go on from a checkpoint, if there is one, up to a step. Returns what each step since the very first one saw."""
    runtime = drt.DatasetRuntime(num_workers=1)
    dataset = runtime.cached_dataset([cache / NumberSource.name], reader_config=drt.ReaderConfig(seed=0))
    loader = dataset.to_torch_dataloader(
        order="permutation", worker_partition="stream", seed=7, batch_size=10, num_workers=num_workers, collate_fn=numbers,
        verbose=False,
    )  # fmt: skip
    seen: list[list[int]] = []
    if checkpoint is not None and checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        seen = saved["seen"]
        loader.load_state_dict(saved["loader"])
    while True:
        for batch in loader:
            seen.append(batch)
            if checkpoint is not None and len(seen) % STEPS_BETWEEN_CHECKPOINTS == 0:
                checkpoint.write_text(json.dumps({"seen": seen, "loader": loader.state_dict()}))
            if len(seen) == stop:
                return seen


def main(cache: Path) -> None:
    """Write or reuse the cache, train in one go and in two, and compare."""
    runtime = drt.DatasetRuntime(num_workers=1)
    result = runtime.from_cache_sources(NumberSource(), cache, reader_config=drt.ReaderConfig(seed=0))
    if not isinstance(result, drt.CacheSourcesDatasetSuccess):
        raise SystemExit(result.message)
    straight = train(cache, None, STEPS, num_workers=0)

    checkpoint = cache / "checkpoint.json"
    checkpoint.unlink(missing_ok=True)
    again = [sys.executable, __file__, str(cache), str(checkpoint)]
    subprocess.run([*again, str(STEPS_OF_FIRST_RUN), "2"], check=True)
    print(f"stopped after step {STEPS_OF_FIRST_RUN} with 2 loading processes")
    print(f"the last checkpoint is of step {len(json.loads(checkpoint.read_text())['seen'])}")
    subprocess.run([*again, str(STEPS), "0"], check=True)
    resumed = json.loads(checkpoint.read_text())["seen"]
    print(f"went on to step {len(resumed)} with none")
    print("the same numbers in the same steps as without a stop:", resumed == straight)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "cache").resolve()
    if len(sys.argv) > 2:
        train(folder, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(folder)
