"""Any table that a dataset accepts comes back from its export: rows, types, values, and what is drawn from them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

hypothesis = pytest.importorskip("hypothesis")

import dataset_rt as drt  # noqa: E402
import polars as pl  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from polars.testing import assert_frame_equal  # noqa: E402
from polars.testing.parametric import dataframes  # noqa: E402
from support import drt as subject  # noqa: E402
from support import values  # noqa: E402
from support.sources import all_kinds  # noqa: E402

pytestmark = pytest.mark.ours

quietly = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=quietly)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True, suppress_health_check=quietly)
settings.register_profile("nightly", max_examples=2000, deadline=None, suppress_health_check=quietly)
settings.load_profile(os.environ.get("DRT_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

ROWS = 9
ID_TYPES = (pl.UInt64, pl.Int64)
WEIGHT_TYPES = (pl.Float64, pl.Float32, pl.Int8, pl.UInt16, pl.Int64, pl.UInt64)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("export-properties")
    return [subject.write(base, name, all_kinds(ROWS)) for name in ("a", "b")]


@st.composite
def tables(draw: Any, stored: pl.DataFrame) -> pl.DataFrame:
    """A table of any rows, in pieces, with columns of any type that Polars' own strategies know."""
    pieces = draw(st.lists(st.lists(st.integers(0, 2 * ROWS - 1), min_size=1, max_size=8), min_size=1, max_size=3))
    rows = [row for piece in pieces for row in piece]
    table = stored[rows].with_columns(
        pl.Series("weight", draw(st.lists(st.integers(1, 100), min_size=len(rows), max_size=len(rows)))).cast(
            draw(st.sampled_from(WEIGHT_TYPES))
        ),
        pl.col("sample_id").cast(draw(st.sampled_from(ID_TYPES))),
    )
    extra = draw(
        dataframes(
            min_cols=0, max_cols=4, min_size=len(rows), max_size=len(rows),
            excluded_dtypes=[pl.Object],
        )
    )  # fmt: skip
    table = pl.concat([table, extra.rename(lambda name: f"extra {name}")], how="horizontal")
    table = table.select(draw(st.permutations(table.columns)))
    at, parts = 0, []
    for piece in pieces:
        parts.append(table[at : at + len(piece)])
        at += len(piece)
    return pl.concat(parts, rechunk=False)


def has_empty_arrays(dtype: Any) -> bool:
    if isinstance(dtype, pl.Array):
        return 0 in dtype.shape or has_empty_arrays(dtype.inner)
    if isinstance(dtype, pl.List):
        return has_empty_arrays(dtype.inner)
    return isinstance(dtype, pl.Struct) and any(has_empty_arrays(field.dtype) for field in dtype.fields)


@given(data=st.data(), shuffle=st.booleans(), seed=st.integers(0, 2**64 - 1), epoch_len=st.integers(1, 40))
def test_any_table_comes_back(caches: list[Path], data: Any, shuffle: bool, seed: int, epoch_len: int) -> None:
    dataset, reference = (subject.open_dataset(caches, num_workers=1, seed=seed, shuffle=shuffle) for _ in range(2))
    table = data.draw(tables(dataset.get_metadata()))
    for each in (dataset, reference):
        each.update_metadata(table)
        each.set_epoch_len(epoch_len)
    folder = Path(tempfile.mkdtemp(prefix="drt-export-"))
    try:
        if any(has_empty_arrays(dtype) for dtype in table.dtypes):
            with pytest.raises(drt.InvalidInputError, match="Array"):
                dataset.dump_config(folder)
            return
        restored = drt.CachedDataset.from_config(dataset.dump_config(folder))
    finally:
        shutil.rmtree(folder)
    again = restored.get_metadata()
    assert again.schema == table.schema
    assert_frame_equal(again, table, check_exact=True)
    for _ in range(2):
        assert [values.plain_sample(sample) for sample in restored] == [values.plain_sample(sample) for sample in reference]


texts = st.lists(st.sampled_from(["a", "b", "ü", "", "x" * 40, None]), min_size=1, max_size=9)


@given(pieces=st.lists(texts, min_size=1, max_size=4), shape=st.sampled_from(["plain", "list", "struct", "array"]))
def test_categories_of_many_chunks_come_back(caches: list[Path], pieces: list[list[str | None]], shape: str) -> None:
    dataset = subject.open_dataset(caches, num_workers=1)
    stored = dataset.get_metadata()
    parts = []
    for number, piece in enumerate(pieces):
        words = [None if text is None else f"{number}{text}" for text in piece]
        column = {
            "plain": lambda words: pl.Series("c", words, dtype=pl.Categorical),
            "list": lambda words: pl.Series("c", [[word] for word in words], dtype=pl.List(pl.Categorical)),
            "struct": lambda words: pl.Series("c", [{"f": word} for word in words], dtype=pl.Struct({"f": pl.Categorical})),
            "array": lambda words: pl.Series("c", [[word] * 2 for word in words], dtype=pl.Array(pl.Categorical, 2)),
        }[shape](words)
        parts.append(stored.head(len(piece)).with_columns(column))
    table = pl.concat(parts, rechunk=False)
    dataset.update_metadata(table)
    folder = Path(tempfile.mkdtemp(prefix="drt-export-"))
    try:
        again = drt.CachedDataset.from_config(dataset.dump_config(folder)).get_metadata()
    finally:
        shutil.rmtree(folder)
    assert again.schema == table.schema
    assert again["c"].to_list() == table["c"].to_list()
