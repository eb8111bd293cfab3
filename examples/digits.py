"""Balance uneven classes with one column of weights.

    python examples/digits.py [CACHE_FOLDER]

scikit-learn's 1,797 handwritten digits are cached once. Then the digits 5 to 9 are made rare, a classifier is trained on what
is drawn from the uneven table, and another on what is drawn from the same table with weights that even the classes out.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt
import numpy as np
import polars as pl
from sklearn.datasets import load_digits
from sklearn.svm import SVC

NUM_DRAWS = 3_000
KEPT_OF_RARE = 30


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


def read_epoch(dataset: drt.CachedDataset) -> tuple[np.ndarray, np.ndarray]:
    """Read one epoch: pixels of shape (epoch length, 64), scaled to 0..1, and labels."""
    samples = list(dataset)
    pixels = np.frombuffer(b"".join(sample.data for sample in samples), dtype=np.uint8).reshape(-1, 64)
    return pixels / 16.0, np.array([sample.metadata["label"] for sample in samples])


def main(cache: Path) -> None:
    """Write or reuse the cache, then train and compare."""
    runtime = drt.DatasetRuntime(num_workers=2)
    result = runtime.from_cache_sources(DigitSource(), cache, reader_config=drt.ReaderConfig(seed=7))
    if not isinstance(result, drt.CacheSourcesDatasetSuccess):
        raise SystemExit(result.message)
    dataset = result.dataset
    metadata = dataset.get_metadata()

    # The validation split is a second view over the same files, read in table order.
    ordered = runtime.cached_dataset([cache / DigitSource.name], reader_config=drt.ReaderConfig(seed=0, shuffle=False))
    ordered.update_metadata(metadata.filter(pl.col("split") == "val"))
    val_images, val_labels = read_epoch(ordered)

    nth_of_its_label = pl.int_range(pl.len()).over("label")
    uneven = metadata.filter(pl.col("split") == "train").filter((pl.col("label") < 5) | (nth_of_its_label < KEPT_OF_RARE))
    balanced = uneven.with_columns(weight=1.0 / pl.len().over("label"))

    for title, table in (("uneven", uneven), ("balanced", balanced)):
        dataset.update_metadata(table)
        dataset.set_epoch_len(NUM_DRAWS)
        images, labels = read_epoch(dataset)
        model = SVC(C=0.1).fit(images, labels)
        print(f"{title}: {table.height} rows, draws per digit {np.bincount(labels, minlength=10).tolist()}")
        print(f"{title}: accuracy {model.score(val_images, val_labels):.3f} on {len(val_labels)} validation images")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "cache"))
