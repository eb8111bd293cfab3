"""Cache preprocessed text once, then draw training samples from it.

    python examples/quickstart.py [CACHE_FOLDER]

Run it twice: the second run reuses the cache and preprocesses nothing.
"""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import dataset_rt as drt

REVIEWS = [
    ("  Arrived early, works WELL ", 1),
    ("Broke on the first day", 0),
    ("Better than the photographs  ", 1),
]


class Review(TypedDict):
    """What one payload holds."""

    text: str
    tokens: list[int]


class ReviewSource:
    """Preprocess and pack the reviews; the label stays outside the payload, where tables can see it."""

    name = "reviews_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield one sample at a time, so nothing has to fit in memory."""
        for raw, label in REVIEWS:
            print("preprocessing:", raw.strip())
            text = raw.strip().lower()
            review = Review(text=text, tokens=[len(word) for word in text.split()])
            yield drt.CacheInput(data=pickle.dumps(review), metadata={"label": label})


cache = Path(sys.argv[1] if len(sys.argv) > 1 else "cache")
runtime = drt.DatasetRuntime(num_workers=2)
result = runtime.from_cache_sources(ReviewSource(), cache, reader_config=drt.ReaderConfig(seed=42))
if not isinstance(result, drt.CacheSourcesDatasetSuccess):
    raise SystemExit(result.message)

dataset = result.dataset
print(dataset.get_metadata())
for sample in dataset:  # drawn by weight, with replacement: a review may come twice
    review: Review = pickle.loads(sample.data)
    print(review["text"], review["tokens"], sample.metadata["label"])
