"""The active table: what `get_metadata` hands out and what `update_metadata` takes, row by row of the contract."""

from __future__ import annotations

import datetime
import decimal
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataset_rt as drt
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import drt as subject
from support import values
from support.sources import ListSource, mini, tame_rows, ten_rows

pytestmark = pytest.mark.quick

Frame = pl.DataFrame
UTC = datetime.timezone.utc


@pytest.fixture
def dataset(base: Path) -> Any:
    """Ten rows over two caches, in order, with all four kinds."""
    paths = [subject.write(base, "a", tame_rows(6)), subject.write(base, "b", tame_rows(4, seed=1))]
    return subject.open_dataset(paths)


def state(dataset: Any) -> tuple[Frame, int]:
    return dataset.get_metadata(), len(dataset)


def replaced(name: str, value: Any, dtype: Any = None) -> Callable[[Frame], Frame]:
    """A table whose column has one repeated value."""
    return lambda frame: frame.with_columns(pl.lit(value, dtype=dtype).alias(name))


def cast(name: str, dtype: Any) -> Callable[[Frame], Frame]:
    return lambda frame: frame.with_columns(pl.col(name).cast(dtype))


def one_value(name: str, row: int, value: Any) -> Callable[[Frame], Frame]:
    """A table with one value changed."""

    def change(frame: Frame) -> Frame:
        column = frame[name].to_list()
        column[row] = value
        return frame.with_columns(pl.Series(name, column, dtype=frame[name].dtype, strict=False))

    return change


# ------------------------------------------------------------------------------------------------------ get_metadata


def test_table_has_identities_stored_columns_and_weights(base: Path) -> None:
    rows = {"a": tame_rows(6), "b": tame_rows(4, seed=1)}
    dataset = subject.open_dataset([subject.write(base, name, content) for name, content in rows.items()])
    table = dataset.get_metadata()
    assert dict(table.schema) == {
        "cache_id": pl.UInt64, "sample_id": pl.UInt64, "label": pl.Int64, "ok": pl.Boolean, "score": pl.Float64,
        "split": pl.String, "weight": pl.Float64,
    }  # fmt: skip
    assert table["weight"].to_list() == [1.0] * 10
    assert table["sample_id"].to_list() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert len(set(table["cache_id"][:6])) == len(set(table["cache_id"][6:])) == 1
    for column in ("label", "ok", "score", "split"):
        assert table[column].to_list() == [metadata[column] for _, metadata in rows["a"] + rows["b"]]


def test_table_is_one_chunk_per_cache(dataset: Any) -> None:
    assert dataset.get_metadata().n_chunks("all") == [2] * 7


def test_table_and_samples_agree(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", mini(50)))
    samples = list(dataset)
    for row, sample in zip(dataset.get_metadata().iter_rows(named=True), samples, strict=True):
        assert (row["cache_id"], row["sample_id"]) == (sample.cache_id, sample.sample_id)
        assert {name: row[name] for name in sample.metadata} == sample.metadata


def test_editing_the_handed_out_table_does_not_touch_the_dataset(dataset: Any) -> None:
    table = dataset.get_metadata()
    before = table.clone()
    table.drop_in_place("label")
    table.insert_column(0, pl.Series("new", range(10)))
    table[0, "weight"] = 9.0
    assert_frame_equal(dataset.get_metadata(), before)


def test_the_table_outlives_its_dataset_and_its_runtime(base: Path) -> None:
    import gc
    import shutil

    path = subject.write(base, "a", mini(2000))
    table = subject.open_dataset(path).get_metadata()
    gc.collect()
    shutil.rmtree(path)
    assert table["s"].to_list() == [f"row-{i}" for i in range(2000)]
    assert table["i"].sum() == sum(range(2000))


def test_aliases_are_the_same_operations(dataset: Any) -> None:
    assert_frame_equal(dataset.samples_metadata(), dataset.get_metadata())
    dataset.set_samples_metadata(dataset.get_metadata().head(3))
    assert len(dataset) == 3
    assert_frame_equal(dataset.samples_metadata(), dataset.get_metadata())


def numeric_addresses(frame: Frame, columns: list[str]) -> list[int]:
    """Where the values of each chunk of these columns begin in memory."""
    found = []
    for name in columns:
        for chunk in frame[name].get_chunks():
            view = chunk.to_numpy(allow_copy=False)
            assert not view.flags.writeable
            found.append(view.__array_interface__["data"][0])
    return found


def test_later_tables_share_the_buffers_of_the_first(dataset: Any) -> None:
    pytest.importorskip("numpy")
    columns = ["label", "score"]
    first, second = dataset.get_metadata(), dataset.get_metadata()
    assert numeric_addresses(first, columns) == numeric_addresses(second, columns)
    dataset.update_metadata(first)
    third, fourth = dataset.get_metadata(), dataset.get_metadata()
    assert numeric_addresses(third, columns) == numeric_addresses(fourth, columns) == numeric_addresses(first, columns)


def test_later_tables_share_the_text_of_the_first(base: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    rows = [(b"", {"s": f"a text that is too long to be kept inline {i}"}) for i in range(100)]
    dataset = subject.open_dataset(subject.write(base, "a", rows))

    def address(frame: Frame) -> int:
        column = frame["s"].to_arrow(compat_level=pl.CompatLevel.newest())
        assert column.type == pyarrow.string_view()
        return column.buffers()[2].address

    first, second = dataset.get_metadata(), dataset.get_metadata()
    assert address(first) == address(second)


def mapped_files(address: int) -> str:
    """The file whose mapping in this process holds an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, last = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return last
    return ""


def test_number_columns_of_an_untouched_table_are_the_mapped_file(base: Path) -> None:
    pytest.importorskip("numpy")
    dataset = subject.open_dataset(subject.write(base, "a", tame_rows(500)))
    for address in numeric_addresses(dataset.get_metadata(), ["label", "score"]):
        assert mapped_files(address).endswith("metadata.arrow")


# --------------------------------------------------------------------------------------------------- update: accepted


@pytest.mark.parametrize("name", ["cache_id", "sample_id"])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64])
def test_identity_types_of_64_bits_are_kept_as_given(dataset: Any, name: str, dtype: Any) -> None:
    given = cast(name, dtype)(dataset.get_metadata())
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)
    assert subject.ids(dataset) == given["sample_id"].to_list()


@pytest.mark.parametrize("dtype", [pl.Int32, pl.UInt32])
def test_identity_types_of_32_bits_are_kept_as_given(dataset: Any, golden: Path, dtype: Any) -> None:
    given = cast("sample_id", dtype)(dataset.get_metadata())
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)
    legacy = subject.open_dataset([golden / "v2" / "bits", golden / "v2" / "bits"])  # its cache_id is 0 or 1
    given = cast("cache_id", dtype)(legacy.get_metadata())
    legacy.update_metadata(given)
    assert_frame_equal(legacy.get_metadata(), given)
    assert subject.pairs(legacy) == [(c, i) for c in range(2) for i in range(130)]


def weights_of(dtype: Any) -> Callable[[Frame], Frame]:
    return lambda frame: frame.with_columns(pl.Series("weight", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).cast(dtype))


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32, pl.Int32, pl.Int64, pl.UInt32, pl.UInt64])
def test_weight_types_are_kept_as_given(dataset: Any, dtype: Any) -> None:
    given = weights_of(dtype)(dataset.get_metadata())
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)


@pytest.mark.ours
@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.UInt8, pl.UInt16])
def test_small_integers_are_weights_too(dataset: Any, dtype: Any) -> None:
    given = weights_of(dtype)(dataset.get_metadata())
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)


@pytest.mark.ours
def test_every_weight_type_draws_the_same_rows(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    drawn = set()
    for dtype in (
        pl.Float64,
        pl.Float32,
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
    ):
        dataset = subject.open_dataset(path, shuffle=True, seed=5)
        dataset.update_metadata(weights_of(dtype)(dataset.get_metadata()))
        dataset.set_epoch_len(200)
        drawn.add(tuple(subject.ids(dataset)))
    assert len(drawn) == 1


@pytest.mark.ours
@pytest.mark.parametrize("weight", [1e308, 1.7976931348623157e308])
def test_weights_whose_sum_overflows_work(base: Path, weight: float) -> None:
    path = subject.write(base, "a", ten_rows())
    dataset, even = subject.open_dataset(path, shuffle=True), subject.open_dataset(path, shuffle=True)
    dataset.update_metadata(replaced("weight", weight)(dataset.get_metadata()))
    dataset.set_epoch_len(300)
    even.set_epoch_len(300)
    drawn = subject.ids(dataset)
    assert set(drawn) == set(range(10))
    assert drawn == subject.ids(even)  # equal weights are equal, however large


SHAPES: dict[str, Callable[[Frame], Frame]] = {
    "filtered": lambda frame: frame.filter(pl.col("label") % 2 == 1),
    "repeated": lambda frame: pl.concat([frame, frame.head(3), frame.head(3)]),
    "one row many times": lambda frame: pl.concat([frame.head(1)] * 40, rechunk=True),
    "reversed": lambda frame: frame.reverse(),
    "sorted by score": lambda frame: frame.sort("score"),
    "columns reordered": lambda frame: frame.select(reversed(frame.columns)),
    "several chunks": lambda frame: pl.concat([frame[:1], frame[1:7], frame[7:]], rechunk=False),
    "one chunk": lambda frame: frame.rechunk(),
    "sliced": lambda frame: frame[3:8],
    "one row": lambda frame: frame[9:],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_columns_may_be_arranged_freely(dataset: Any, shape: str) -> None:
    given = SHAPES[shape](dataset.get_metadata())
    dataset.update_metadata(given)
    seen = dataset.get_metadata()
    assert_frame_equal(seen, given)
    assert seen.n_chunks("all") == given.n_chunks("all")
    assert len(dataset) == given.height
    assert subject.pairs(dataset) == list(given.select("cache_id", "sample_id").iter_rows())


EXTRA: dict[str, Callable[[int], pl.Series]] = {
    "Int8": lambda n: pl.Series(range(n), dtype=pl.Int8),
    "UInt64 with nulls": lambda n: pl.Series([None, *range(n - 1)], dtype=pl.UInt64),
    "String": lambda n: pl.Series([f"text {i} that is longer than twelve bytes" for i in range(n)]),
    "List": lambda n: pl.Series([list(range(i)) for i in range(n)], dtype=pl.List(pl.Int64)),
    "Array": lambda n: pl.Series([[i, i + 1] for i in range(n)], dtype=pl.Array(pl.Int32, 2)),
    "Struct": lambda n: pl.Series([{"a": i, "b": str(i)} for i in range(n)]),
    "Date": lambda n: pl.Series([datetime.date(2024, 1, 1 + i) for i in range(n)]),
    "Datetime with zone": lambda n: pl.Series([datetime.datetime(2024, 1, 1 + i, tzinfo=UTC) for i in range(n)]),
    "Duration": lambda n: pl.Series([datetime.timedelta(seconds=i) for i in range(n)]),
    "Time": lambda n: pl.Series([datetime.time(i) for i in range(n)]),
    "Binary": lambda n: pl.Series([bytes([i]) for i in range(n)]),
    "Null": lambda n: pl.Series([None] * n, dtype=pl.Null),
    "Decimal": lambda n: pl.Series([decimal.Decimal(i) / 4 for i in range(n)], dtype=pl.Decimal(10, 2)),
    "Categorical": lambda n: pl.Series([f"c{i % 3}" for i in range(n)], dtype=pl.Categorical),
    "Enum": lambda n: pl.Series(["x", "y"] * (n // 2), dtype=pl.Enum(["x", "y"])),
    "Boolean": lambda n: pl.Series([True, None] * (n // 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXTRA)
def test_extra_columns_are_kept_exactly(dataset: Any, kind: str) -> None:
    table = dataset.get_metadata()
    given = table.insert_column(3, EXTRA[kind](table.height).alias("extra"))
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)
    assert all("extra" not in sample.metadata for sample in dataset)


@pytest.mark.ours
@pytest.mark.parametrize(
    "column",
    [
        pl.Series("extra", [object()] * 10, dtype=pl.Object),
        pl.Series("extra", range(10), dtype=pl.Int128),
        pl.Series("", range(10)),
    ],
    ids=["Object", "Int128", "empty name"],
)
def test_odd_extra_columns_are_kept_or_refused_but_never_changed(dataset: Any, column: pl.Series) -> None:
    before = state(dataset)
    given = before[0].with_columns(column)
    try:
        dataset.update_metadata(given)
    except ValueError:
        assert_frame_equal(dataset.get_metadata(), before[0])
        return
    seen = dataset.get_metadata()
    assert seen.schema == given.schema and seen[column.name].to_list() == given[column.name].to_list()


def test_stored_columns_may_be_edited_and_samples_keep_the_stored_values(dataset: Any) -> None:
    stored = [values.plain_sample(sample) for sample in dataset]
    given = dataset.get_metadata().with_columns(
        pl.lit(7).cast(pl.Int64).alias("label"), pl.lit(None, dtype=pl.String).alias("split"), pl.col("ok").not_()
    )
    dataset.update_metadata(given)
    assert_frame_equal(dataset.get_metadata(), given)
    assert [values.plain_sample(sample) for sample in dataset] == stored


EDITS: dict[str, tuple[str, Any]] = {
    "another int": ("label", 2**62),
    "another float": ("score", -0.0),
    "another bool": ("ok", None),
    "another text": ("split", "trein"),
    "a longer text": ("split", "a text that does not fit into sixteen bytes"),
    "no int": ("label", None),
    "no float": ("score", None),
    "no text": ("split", None),
}
ARRANGEMENTS: dict[str, Callable[[Frame], Frame]] = {
    "as it was": lambda frame: frame,
    "new weights": lambda frame: frame.with_columns(weight=pl.col("sample_id") + 1.0),
    "backwards": lambda frame: frame.reverse(),
    "filtered": lambda frame: frame.filter(pl.col("sample_id") % 3 != 1),
    "repeated": lambda frame: pl.concat([frame, frame]),
    "in one chunk": lambda frame: frame.rechunk(),
    "joined": lambda frame: frame.join(frame.select("cache_id", "sample_id"), on=["cache_id", "sample_id"]),
    "shuffled": lambda frame: frame.sample(fraction=1.0, shuffle=True, seed=3),
    "without chunks in common": lambda frame: pl.concat([frame[:3], frame[3:7], frame[7:]], rechunk=False),
    "of other identity types": lambda frame: frame.with_columns(pl.col("sample_id").cast(pl.Int32)),
}


@pytest.mark.ours
@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_a_table_with_the_stored_values_is_taken_in_silence(dataset: Any, arrange: Callable[[Frame], Frame]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.update_metadata(arrange(dataset.get_metadata()))
        dataset.update_metadata(dataset.get_metadata())


@pytest.mark.ours
@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
@pytest.mark.parametrize(("name", "value"), EDITS.values(), ids=EDITS)
def test_an_edited_stored_column_is_told_with_its_first_row(
    dataset: Any, name: str, value: Any, arrange: Callable[[Frame], Frame]
) -> None:
    arranged = arrange(dataset.get_metadata())
    for row in (arranged.height - 1, arranged.height // 2):  # the second is the first of two then
        before = arranged[name][row]
        edited = one_value(name, arranged.height - 1, value)(one_value(name, row, value)(arranged))
        with pytest.warns(drt.StoredColumnsIgnoredWarning) as told:
            dataset.update_metadata(edited)
        (warning,) = told
        assert warning.filename == __file__
        assert warning.message.columns == (name,)
        text = str(warning.message)
        identity = f"(cache_id {arranged['cache_id'][row]}, sample_id {arranged['sample_id'][row]})"
        assert f"row {row} {identity} has" in text and "put new values into a column of another name" in text
        assert repr(before) in text and repr(value)[:40] in text and repr(name) in text
        assert_frame_equal(dataset.get_metadata(), edited)


@pytest.mark.ours
def test_every_edited_column_is_told_and_rows_of_large_tables_are_found(base: Path) -> None:
    rows = 70_000
    content = ((b"", {"n": i, "x": i / 7, "even": i % 2 == 0, "text": f"text number {i % 1000}"}) for i in range(rows))
    dataset = subject.open_dataset(subject.write(base, "large", content))
    table = dataset.get_metadata()
    names = ("even", "n", "text", "x")
    for at in (0, 1023, 1024, 65_535, 65_536, rows - 1):
        for given in (table, table.reverse(), table.sample(fraction=1.0, shuffle=True, seed=at)):
            edited = given
            for name in names:
                edited = one_value(name, at, None)(edited)
            with pytest.warns(drt.StoredColumnsIgnoredWarning, match=rf"'even', 'n', 'text', 'x'.* row {at} ") as told:
                dataset.update_metadata(edited)
            assert [warning.message.columns for warning in told] == [names]


@pytest.mark.ours
def test_a_warning_that_is_an_error_keeps_the_old_table(dataset: Any) -> None:
    dataset.set_epoch_len(4)
    assert subject.ids(dataset) == [0, 1, 2, 3]
    before = state(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error", drt.StoredColumnsIgnoredWarning)
        with pytest.raises(drt.StoredColumnsIgnoredWarning):
            dataset.update_metadata(replaced("label", 7, pl.Int64)(before[0]))
    assert_frame_equal(dataset.get_metadata(), before[0])
    assert len(dataset) == before[1] and subject.ids(dataset) == [4, 5, 0, 1]


def test_an_update_sets_the_length_and_rewinds(dataset: Any) -> None:
    dataset.set_epoch_len(3)
    assert subject.ids(dataset) == [0, 1, 2]
    dataset.update_metadata(dataset.get_metadata())
    assert len(dataset) == 10
    assert subject.ids(dataset) == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]


def test_an_update_rewinds_the_draws_of_a_shuffled_dataset(base: Path) -> None:
    dataset = subject.open_dataset(subject.write(base, "a", ten_rows()), shuffle=True, seed=11)
    table = dataset.get_metadata()
    dataset.update_metadata(table)
    first = subject.ids(dataset)
    assert subject.ids(dataset) != first
    dataset.update_metadata(table)
    assert subject.ids(dataset) == first


@pytest.mark.ours
def test_equal_weights_draw_what_no_table_draws(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    for weight in (1.0, 2.5, 1e-300, 1 / 3):
        untouched, updated = (subject.open_dataset(path, shuffle=True, seed=11) for _ in range(2))
        updated.update_metadata(replaced("weight", weight)(updated.get_metadata()))
        for dataset in (untouched, updated):
            dataset.set_epoch_len(200)
        assert subject.ids(untouched) == subject.ids(updated)


def test_the_given_frame_may_change_afterwards(dataset: Any) -> None:
    given = dataset.get_metadata()
    kept = given.clone()
    dataset.update_metadata(given)
    given[0, "weight"] = 5.0
    given.drop_in_place("label")
    assert_frame_equal(dataset.get_metadata(), kept)


# ---------------------------------------------------------------------------------------------------- update: refused

REFUSED: dict[str, tuple[Callable[[Frame], Frame], list[str]]] = {
    "no rows": (lambda frame: frame.head(0), []),
    "no cache_id": (lambda frame: frame.drop("cache_id"), ["cache_id"]),
    "no sample_id": (lambda frame: frame.drop("sample_id"), ["sample_id"]),
    "no weight": (lambda frame: frame.drop("weight"), ["weight"]),
    "no stored column": (lambda frame: frame.drop("split"), ["split"]),
    "identity Int8": (cast("sample_id", pl.Int8), ["sample_id"]),
    "identity UInt16": (cast("sample_id", pl.UInt16), ["sample_id"]),
    "identity Float64": (cast("sample_id", pl.Float64), ["sample_id"]),
    "identity text": (cast("cache_id", pl.String), ["cache_id"]),
    "identity Int128": (cast("sample_id", pl.Int128), []),
    "identity null": (one_value("sample_id", 4, None), ["sample_id"]),
    "identity negative": (lambda f: one_value("sample_id", 4, -1)(cast("sample_id", pl.Int64)(f)), ["sample_id"]),
    "unknown sample": (one_value("sample_id", 4, 4711), ["4711"]),
    "unknown cache": (one_value("cache_id", 4, 4712), ["4712"]),
    "sample of the other cache": (
        lambda frame: frame.with_columns(
            pl.when(pl.len().over("cache_id") == 4).then(5).otherwise("sample_id").cast(pl.UInt64).alias("sample_id")
        ),
        ["5"],
    ),
    "weight Boolean": (replaced("weight", True), ["weight"]),
    "weight Decimal": (cast("weight", pl.Decimal(10, 2)), ["weight"]),
    "weight text": (cast("weight", pl.String), ["weight"]),
    "weight null": (one_value("weight", 4, None), ["weight"]),
    "weight zero": (one_value("weight", 4, 0.0), ["weight", "4"]),
    "weight minus zero": (one_value("weight", 4, -0.0), ["weight", "4"]),
    "weight negative": (one_value("weight", 4, -1.0), ["weight", "4"]),
    "weight NaN": (one_value("weight", 4, math.nan), ["weight", "4"]),
    "weight infinite": (one_value("weight", 4, math.inf), ["weight", "4"]),
    "weight zero among integers": (lambda f: one_value("weight", 4, 0)(cast("weight", pl.Int64)(f)), ["weight", "4"]),
    "stored column Int32": (cast("label", pl.Int32), ["label"]),
    "stored column UInt64": (lambda frame: frame.with_columns(pl.lit(1, dtype=pl.UInt64).alias("label")), ["label"]),
    "stored column Float32": (cast("score", pl.Float32), ["score"]),
    "stored column Categorical": (cast("split", pl.Categorical), ["split"]),
    "stored column Enum": (cast("split", pl.Enum(["train", "val"])), ["split"]),
    "stored column Null": (replaced("ok", None), ["ok"]),
    "stored column text for bool": (cast("ok", pl.String), ["ok"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_table_is_refused_and_nothing_changes(dataset: Any, case: str) -> None:
    change, words = REFUSED[case]
    dataset.update_metadata(dataset.get_metadata().sort("label", "cache_id"))
    dataset.set_epoch_len(3)
    next_rows = [tuple(row) for row in dataset.get_metadata().select("cache_id", "sample_id").iter_rows()]
    assert subject.pairs(dataset) == next_rows[:3]
    before = state(dataset)
    with pytest.raises(ValueError) as caught:
        dataset.update_metadata(change(before[0]))
    for word in words:
        assert word in str(caught.value)
    if subject.IS_OURS:
        assert isinstance(caught.value, subject.InvalidInput)
    after = state(dataset)
    assert_frame_equal(after[0], before[0])
    assert after[1] == before[1] == 3
    assert subject.pairs(dataset) == next_rows[3:6]  # the cursor stayed where it was


@pytest.mark.ours
def test_an_unknown_row_is_named_by_both_numbers(dataset: Any) -> None:
    table = dataset.get_metadata()
    with pytest.raises(ValueError) as caught:
        dataset.update_metadata(one_value("sample_id", 4, 4711)(table))
    assert str(table["cache_id"][4]) in str(caught.value) and "4711" in str(caught.value)


def not_frames(table: Frame) -> dict[str, Any]:
    return {
        "LazyFrame": table.lazy(), "dict": table.to_dict(), "None": None, "list": table.to_dicts(),
        "Series": table["label"], "text": "table",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["LazyFrame", "dict", "None", "list", "Series", "text"])
def test_anything_but_a_frame_is_a_type_error(dataset: Any, kind: str) -> None:
    before = state(dataset)
    error = TypeError if subject.IS_OURS else (AttributeError, TypeError)
    with pytest.raises(error):
        dataset.update_metadata(not_frames(before[0])[kind])
    assert_frame_equal(dataset.get_metadata(), before[0])


def test_a_pyarrow_table_is_a_type_error(dataset: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"cache_id": [1], "sample_id": [0], "weight": [1.0]})
    with pytest.raises(TypeError if subject.IS_OURS else (AttributeError, TypeError)):
        dataset.update_metadata(table)


@pytest.mark.ours
def test_a_weight_of_128_bits_is_taken_or_refused_whole(dataset: Any) -> None:
    before = state(dataset)
    given = weights_of(pl.Int128)(before[0])
    try:
        dataset.update_metadata(given)
    except ValueError:
        assert_frame_equal(dataset.get_metadata(), before[0])
    else:
        assert_frame_equal(dataset.get_metadata(), given)


def test_a_table_of_another_dataset_with_the_same_caches_fits(base: Path) -> None:
    path = subject.write(base, "a", ten_rows())
    saved = subject.open_dataset(path).get_metadata().filter(pl.col("i") > 6)
    other = subject.open_dataset(path)
    other.update_metadata(saved)
    assert subject.ids(other) == [7, 8, 9]


def test_many_chunks_of_many_caches_work(base: Path) -> None:
    paths = [subject.write(base, f"c{i}", [(b"%d" % i, {"i": i}), (b"-%d" % i, {"i": -i})]) for i in range(40)]
    dataset = subject.open_dataset(paths)
    assert dataset.get_metadata().n_chunks() == 40
    dataset.update_metadata(dataset.get_metadata().sort("i", descending=True))
    assert [sample.metadata["i"] for sample in dataset] == sorted([*range(40), *range(0, -40, -1)], reverse=True)


def test_an_update_works_on_a_dataset_from_cache_sources(base: Path) -> None:
    result = subject.runtime().from_cache_sources(
        ListSource("a", ten_rows()), base, reader_config=subject.reader_config(), writer_config=subject.writer_config()
    )
    result.dataset.update_metadata(result.dataset.get_metadata()[2:4])
    assert subject.ids(result.dataset) == [2, 3]
