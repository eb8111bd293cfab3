"""Whatever a source may yield comes back exactly, from our reader and from the format in plain Python."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

hypothesis = pytest.importorskip("hypothesis")
pytest.importorskip("pyarrow", reason="drt_spec reads metadata.arrow with pyarrow")

import drt_spec  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from support import drt as subject  # noqa: E402
from support import values  # noqa: E402

settings.register_profile("dev", max_examples=40, deadline=None)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("DRT_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda name: name not in drt_spec.RESERVED_COLUMNS
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
floats = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": floats,
    "string": texts,
}
payloads = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda byte, times: bytes([byte]) * times, st.integers(0, 255), st.integers(0, 5000)),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=20), st.integers(0, 200)),
)


@st.composite
def caches(draw: Any, min_columns: int = 0) -> list[tuple[bytes, dict[str, Any]]]:
    """Rows of one schema."""
    schema = draw(st.dictionaries(names, st.sampled_from(list(VALUES)), min_size=min_columns, max_size=5))
    row = st.tuples(payloads, st.fixed_dictionaries({name: VALUES[kind] for name, kind in schema.items()}))
    return draw(st.lists(row, min_size=1, max_size=12))


@pytest.mark.ours
@given(
    rows=caches(),
    algo=st.sampled_from(["none", "lz4"]),
    max_shard_bytes=st.integers(1, 3000),
    num_workers=st.integers(1, 3),
)
def test_any_rows_come_back(rows: Any, algo: str, max_shard_bytes: int, num_workers: int) -> None:
    base = Path(tempfile.mkdtemp(prefix="drt-property-"))
    try:
        path = subject.write(base, "x", rows, algo=algo, max_shard_bytes=max_shard_bytes, num_workers=num_workers)
        wanted = [values.expected_sample(*row, drt_spec.cache_id_of("x"), i) for i, row in enumerate(rows)]
        for io in subject.IO_MODES:
            for validate in (False, True):
                dataset = subject.open_dataset(path, io=io, validate=validate)
                assert [values.plain_sample(sample) for sample in dataset] == wanted
        table = values.plain_table(subject.open_dataset(path).get_metadata())
        assert [row[2:-1] for row in table["rows"]] == [
            [[kind, value] for _, kind, value in sample["metadata"]] for sample in wanted
        ]
        spec = drt_spec.open_cache(path)
        spec.verify()
        assert [values.expected_sample(row.payload, row.metadata, row.cache_id, row.sample_id) for row in spec.rows()] == wanted
        if algo == "none":
            files = drt_spec.encode_cache("x", rows, max_shard_bytes=max_shard_bytes)
            assert files.index == (path / "index.bin").read_bytes()
            assert files.shards == [entry.read_bytes() for entry in sorted((path / "shards").iterdir())]
    finally:
        shutil.rmtree(base)


@pytest.mark.ours
@given(rows=caches(), algo=st.sampled_from(["none", "lz4"]), format_version=st.sampled_from([2, 3]))
def test_any_rows_of_a_foreign_writer_come_back(rows: Any, algo: str, format_version: int) -> None:
    base = Path(tempfile.mkdtemp(prefix="drt-property-"))
    try:
        path = drt_spec.write_cache(base, "x", rows, algo=algo, format_version=format_version, max_shard_bytes=1000)
        cache_id = drt_spec.cache_id_of("x") if format_version == 3 else 0
        wanted = [values.expected_sample(*row, cache_id, i) for i, row in enumerate(rows)]
        dataset = subject.open_dataset(path, validate=True)
        assert [values.plain_sample(sample) for sample in dataset] == wanted
        assert [values.plain_sample(sample) for sample in dataset] == wanted
    finally:
        shutil.rmtree(base)


@given(value=floats)
def test_the_spelling_of_a_float_reads_back_to_its_bits(value: float) -> None:
    assert drt_spec.same_value(float(drt_spec.format_float(value)), value)


@given(payload=payloads)
def test_literal_blocks_decode(payload: bytes) -> None:
    assert drt_spec.decode_payload(drt_spec.encode_payload(payload, "lz4"), "lz4") == payload


@pytest.fixture(scope="module")
def seven_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return subject.write(tmp_path_factory.mktemp("windows"), "a", [(b"%d" % i, {"i": i}) for i in range(7)])


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12), seed=st.integers(0, 2**64 - 1), shuffle=st.booleans())
def test_windows_of_any_lengths_join_to_one_stream(seven_rows: Path, lengths: list[int], seed: int, shuffle: bool) -> None:
    whole, pieces = (subject.open_dataset(seven_rows, num_workers=1, seed=seed, shuffle=shuffle) for _ in range(2))
    joined: list[int] = []
    for length in lengths:
        pieces.set_epoch_len(length)
        assert len(pieces) == length
        joined += subject.ids(pieces)
    whole.set_epoch_len(sum(lengths))
    assert joined == subject.ids(whole)
    if not shuffle:
        assert joined == [i % 7 for i in range(sum(lengths))]


@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    weights=st.data(),
    seed=st.integers(0, 2**64 - 1),
)
def test_draws_come_from_the_table_and_repeat_with_its_seed(seven_rows: Path, rows: list[int], weights: Any, seed: int) -> None:
    import polars as pl

    scale = weights.draw(st.lists(st.floats(1e-3, 1e3), min_size=len(rows), max_size=len(rows)))
    drawn = []
    for _ in range(2):
        dataset = subject.open_dataset(seven_rows, num_workers=1, seed=seed, shuffle=True)
        dataset.update_metadata(dataset.get_metadata()[rows].with_columns(pl.Series("weight", scale)))
        dataset.set_epoch_len(50)
        drawn.append(subject.ids(dataset))
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) <= set(rows)
