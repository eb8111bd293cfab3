"""A dataset in order against a plain Python model, under any sequence of calls."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis")

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from support import drt as subject

CACHES = {"a": 5, "b": 4}
Pair = tuple[int, int]


class Model:
    """What a dataset with `shuffle=False` is: rows, a cursor, and a window length."""

    def __init__(self, rows: list[Pair]) -> None:
        self.rows, self.cursor, self.length = rows, 0, len(rows)

    def window(self) -> list[Pair]:
        taken = [self.rows[(self.cursor + step) % len(self.rows)] for step in range(self.length)]
        self.cursor = (self.cursor + self.length) % len(self.rows)
        return taken

    def replace(self, rows: list[Pair]) -> None:
        self.rows, self.cursor, self.length = rows, 0, len(rows)


class DatasetAgainstModel(RuleBasedStateMachine):
    iterators = Bundle("iterators")

    @initialize(io=st.sampled_from(subject.IO_MODES), prefetch=st.sampled_from([1, 3, 64]))
    def open(self, io: str, prefetch: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="drt-model-"))
        paths = []
        for name, count in CACHES.items():
            rows = [(b"%s%d" % (name.encode(), i), {"name": name, "i": i}) for i in range(count)]
            paths.append(subject.write(self.folder, name, rows, algo="lz4" if name == "b" else "none", max_shard_bytes=60))
        self.dataset = subject.open_dataset(paths, io=io, prefetch=prefetch)
        self.table = self.dataset.get_metadata()
        self.all = [tuple(row) for row in self.table.select("cache_id", "sample_id").iter_rows()]
        self.stored = {(row["cache_id"], row["sample_id"]): (row["name"], row["i"]) for row in self.table.iter_rows(named=True)}
        self.model = Model(list(self.all))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def check(self, sample: Any, pair: Pair) -> None:
        name, i = self.stored[pair]
        assert (sample.cache_id, sample.sample_id) == pair
        assert sample.data == b"%s%d" % (name.encode(), i)
        assert sample.metadata == {"i": i, "name": name}

    @rule()
    def one_whole_window(self) -> None:
        wanted = self.model.window()
        samples = list(self.dataset)
        for sample, pair in zip(samples, wanted, strict=True):
            self.check(sample, pair)

    @rule(target=iterators)
    def new_iterator(self) -> Any:
        iterator, wanted = iter(self.dataset), self.model.window()
        if not subject.IS_OURS:  # the public package takes its window with the first sample
            self.check(next(iterator), wanted.pop(0))
        return iterator, wanted

    @rule(pair=iterators, count=st.integers(1, 4))
    def advance(self, pair: Any, count: int) -> None:
        iterator, wanted = pair
        for _ in range(count):
            if wanted:
                self.check(next(iterator), wanted.pop(0))
            else:
                with pytest.raises(StopIteration):
                    next(iterator)

    @rule(pair=consumes(iterators))
    def finish(self, pair: Any) -> None:
        iterator, wanted = pair
        samples = list(iterator)
        for sample, each in zip(samples, wanted, strict=True):
            self.check(sample, each)

    @rule(pair=consumes(iterators))
    def drop(self, pair: Any) -> None:
        del pair

    @rule(length=st.integers(1, 25))
    def set_length(self, length: int) -> None:
        self.dataset.set_epoch_len(length)
        self.model.length = length

    @rule(length=st.sampled_from([0, -1, 2**64, 1.5, "2", None]))
    def set_wrong_length(self, length: Any) -> None:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            self.dataset.set_epoch_len(length)

    @rule(rows=st.lists(st.integers(0, 8), min_size=1, max_size=20), weighted=st.booleans())
    def replace_table(self, rows: list[int], weighted: bool) -> None:
        table = self.table[rows]
        if weighted:
            table = table.with_columns(pl.Series("weight", [float(i + 1) for i in range(len(rows))]))
        self.dataset.update_metadata(table)
        self.model.replace([self.all[row] for row in rows])

    @rule(keep=st.integers(1, 8))
    def edit_the_active_table(self, keep: int) -> None:
        table = self.dataset.get_metadata().head(keep).reverse()
        self.dataset.update_metadata(table)
        self.model.replace(self.model.rows[:keep][::-1])

    @rule(
        wrong=st.sampled_from(
            [
                lambda table: table.head(0),
                lambda table: table.drop("i"),
                lambda table: table.with_columns(weight=pl.lit(0.0)),
                lambda table: table.with_columns(sample_id=pl.lit(99, dtype=pl.UInt64)),
                lambda table: table.with_columns(pl.col("i").cast(pl.Int32)),
            ]
        )
    )
    def replace_table_wrongly(self, wrong: Any) -> None:
        with pytest.raises(ValueError):
            self.dataset.update_metadata(wrong(self.table))

    @rule(row=st.integers(0, 8))
    def get_item(self, row: int) -> None:
        self.check(self.dataset.get_item(*self.all[row]), self.all[row])

    @rule(row=st.integers(0, 8))
    def get_unknown_item(self, row: int) -> None:
        with pytest.raises(IndexError):
            self.dataset.get_item(self.all[row][0], 99)

    @rule(rows=st.lists(st.integers(0, 8), max_size=12))
    def get_many(self, rows: list[int]) -> None:
        if subject.IS_OURS:
            samples = self.dataset.get_many([self.all[row] for row in rows])
            for sample, row in zip(samples, rows, strict=True):
                self.check(sample, self.all[row])

    @invariant()
    def length_and_table_agree(self) -> None:
        if hasattr(self, "model"):
            assert len(self.dataset) == self.model.length
            table = self.dataset.get_metadata()
            assert [tuple(row) for row in table.select("cache_id", "sample_id").iter_rows()] == self.model.rows


TestDatasetAgainstModel = DatasetAgainstModel.TestCase
TestDatasetAgainstModel.settings = settings(
    max_examples=400 if os.environ.get("DRT_HYPOTHESIS_PROFILE") == "nightly" else 30,
    stateful_step_count=40,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=list(HealthCheck),
)
