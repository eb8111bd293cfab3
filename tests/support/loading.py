"""Functions that loading processes import, and what tests of loaders share."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def same(batch: Any) -> Any:
    return batch


def same_after_a_look(batch: list[Any]) -> list[Any]:
    assert all(len(sample.data) for sample in batch)
    return batch


def as_tuple(batch: list[Any]) -> tuple[Any, ...]:
    return tuple(batch)


def backwards(batch: list[Any]) -> list[Any]:
    return batch[::-1]


def marked(batch: list[Any]) -> list[Any]:
    """The very samples, their metadata changed in place: equal values of another type count too."""
    for sample in batch:
        sample.metadata["i"] = float(sample.metadata["i"])
    return batch


def first_only(batch: list[Any]) -> list[Any]:
    return batch[:1]


def numbers(batch: list[Any]) -> list[int]:
    return [sample.metadata["i"] for sample in batch]


def number(sample: Any) -> int:
    return sample.metadata["i"]


def number_and_text(sample: Any) -> tuple[int, str]:
    return sample.metadata["i"], sample.metadata["s"]


def with_process(batch: list[Any]) -> tuple[int, list[int]]:
    return os.getpid(), numbers(batch)


def refuses_five(sample: Any) -> int:
    if sample.metadata["i"] == 5:
        raise KeyError("five is refused")
    return sample.metadata["i"]


def random_number(_sample: Any) -> int:
    import numpy

    return int(numpy.random.randint(2**31))


def named_rows(batch: list[Any]) -> list[tuple[str, int]]:
    return [(name, sample.sample_id) for name, sample in batch]


def same_pairs_after_a_look(batch: list[Any]) -> list[Any]:
    assert all(len(sample.data) for _, sample in batch)
    return batch


def with_its_length(pair: Any) -> tuple[str, int, int]:
    name, sample = pair
    return name, sample.sample_id, len(sample.data)


def refuses_the_third_of_b(pair: Any) -> Any:
    name, sample = pair
    if (name, sample.sample_id) == ("b", 3):
        raise KeyError("the third is refused")
    return pair


def kept(made: Any) -> Any:
    """Have a loader's processes ended by `end_processes`."""
    _made.add(made)
    return made


def loader(dataset: Any, **options: Any) -> Any:
    """A quiet loader in table order that loads in this process, but for what is said; nothing is checked about its warnings."""
    defaults = {"verbose": False, "num_workers": 0, "shuffle": False, "collate_fn": numbers}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = dataset.to_torch_dataloader(**{**defaults, **options})
    _made.add(made)
    return made


def end_processes() -> None:
    """End all loading processes now: where an exception keeps them, the garbage collector waits five seconds for each."""
    for made in list(_made):
        if made._iterator is not None:
            made._iterator._shutdown_workers()


def forked(dataset: Any, **options: Any) -> Any:
    """The same with forked processes, which start in no time."""
    return loader(dataset, **{"multiprocessing_context": "fork", "num_workers": 2, **options})


def text(batches: Iterable[list[int]]) -> str:
    """Batches of small numbers as `01 23 4`."""
    return " ".join("".join(map(str, batch)) for batch in batches)


def flat(batches: Iterable[Iterable[int]]) -> list[int]:
    return [number for batch in batches for number in batch]
