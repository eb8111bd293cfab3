"""Train a small network on drawn digits, in one process.

    python examples/torch_training.py [CACHE_FOLDER]

scikit-learn's 1,797 handwritten digits are cached once; training images are drawn by weight, validation images come in table
order. After every epoch the digits that the network gets wrong are given more weight, and the loader is told.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt
import numpy as np
import polars as pl
import torch
from sklearn.datasets import load_digits
from torch import nn

NUM_EPOCHS = 6


class DigitSource:
    """Images of 8 by 8 pixels, values 0 to 16. Every fifth image is for validation."""

    name = "digits_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the 64 pixels as bytes; label and split become columns of the metadata table."""
        images, labels = load_digits(return_X_y=True)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield drt.CacheInput(
                data=image.astype(np.uint8).tobytes(),
                metadata={"label": int(label), "split": "val" if number % 5 == 0 else "train"},
            )


def to_batch(samples: list[drt.CachedSample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a batch: pixels of shape (samples, 64), scaled to 0..1, and labels."""
    pixels = np.frombuffer(b"".join(sample.data for sample in samples), dtype=np.uint8).reshape(-1, 64)
    return torch.from_numpy(pixels / np.float32(16)), torch.tensor([sample.metadata["label"] for sample in samples])


def main(cache: Path) -> None:
    """Write or reuse the cache, then train."""
    torch.manual_seed(0)
    runtime = drt.DatasetRuntime(num_workers=2)
    config = drt.ReaderConfig(seed=0)
    result = runtime.from_cache_sources(DigitSource(), cache, reader_config=config)
    if not isinstance(result, drt.CacheSourcesDatasetSuccess):
        raise SystemExit(result.message)
    dataset = result.dataset
    metadata = dataset.get_metadata()
    train = metadata.filter(pl.col("split") == "train")
    dataset.update_metadata(train)
    validation = runtime.cached_dataset([cache / DigitSource.name], reader_config=config)
    validation.update_metadata(metadata.filter(pl.col("split") == "val"))

    loader = dataset.to_torch_dataloader(batch_size=64, seed=7, num_workers=0, collate_fn=to_batch, verbose=False)
    val_loader = validation.to_torch_dataloader(batch_size=256, shuffle=False, num_workers=0, collate_fn=to_batch, verbose=False)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    for epoch in range(NUM_EPOCHS):
        for pixels, labels in loader:
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predicted, expected = zip(*((model(pixels).argmax(1), labels) for pixels, labels in val_loader), strict=True)
        right = torch.cat(predicted) == torch.cat(expected)
        print(f"epoch {epoch}: accuracy {right.float().mean():.3f} on {len(right)} validation images")

        wrong = torch.bincount(torch.cat(expected)[~right], minlength=10).tolist()
        more = pl.Series("weight", [1.0 + wrong[label] / 10 for label in train["label"]])
        dataset.update_metadata(train.with_columns(more))
        loader.refresh(dataset)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "cache"))
