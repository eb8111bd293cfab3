"""The plain-Python format against the golden caches: if this fails, the prose and the bytes disagree."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="drt_spec reads metadata.arrow with pyarrow")

import drt_spec
from support import values

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CACHES = [
    f"{folder}/{entry.stem}"
    for folder in ("v2", "v3", "migrated")
    for entry in sorted((GOLDEN / "expected" / folder).glob("*.json"))
]
REFUSED_BY_ENCODER = {"nonfinite", "reserved_keys", "nul_key"}


def load_expected(cache: str) -> dict[str, Any]:
    return json.loads((GOLDEN / "expected" / f"{cache}.json").read_text(encoding="utf-8"))


def expected_value(sample: dict[str, Any], name: str) -> Any:
    bits = sample.get("float_bits", {}).get(name)
    return sample["metadata"][name] if bits is None else struct.unpack(">d", bytes.fromhex(bits))[0]


@pytest.mark.parametrize("cache", CACHES)
def test_decoder_returns_the_rows_of_a_golden_cache(cache: str) -> None:
    expected = load_expected(cache)
    opened = drt_spec.open_cache(GOLDEN / cache, position=7)
    assert opened.manifest.format_version == expected["format_version"]
    assert opened.manifest.source_name == expected["source_name"]
    assert opened.manifest.schema == [(column["name"], column["kind"]) for column in expected["schema"]]
    rows = list(opened.rows())
    assert len(rows) == expected["sample_count"] == len(expected["samples"])
    for row, sample in zip(rows, expected["samples"], strict=True):
        seen = values.plain_sample(
            type(
                "S",
                (),
                {"data": row.payload, "metadata": row.metadata, "cache_id": row.cache_id, "sample_id": row.sample_id},
            )
        )
        wanted_id = 7 if sample["cache_id"] is None else sample["cache_id"]
        assert (seen["cache_id"], seen["sample_id"]) == (wanted_id, sample["sample_id"])
        assert (seen["len"], seen["sha256"]) == (sample["len"], sample["sha256"])
        for name, _ in opened.manifest.schema:
            assert drt_spec.same_value(row.metadata[name], expected_value(sample, name)), name


@pytest.mark.parametrize("cache", CACHES)
def test_golden_caches_pass_verification(cache: str) -> None:
    drt_spec.open_cache(GOLDEN / cache).verify()


@pytest.mark.parametrize("cache", [name for name in CACHES if name.split("/")[1] not in REFUSED_BY_ENCODER])
def test_encoder_gives_the_golden_bytes(cache: str) -> None:
    folder = GOLDEN / cache
    opened = drt_spec.open_cache(folder)
    rows = [(row.payload, row.metadata) for row in opened.rows()]
    first = opened.manifest.shards[0]
    limit = 512 if "shards" in cache else 1 << 26
    if first.algo == "lz4":  # an independent compressor gives other blocks, so only the JSON part is comparable
        for number, (_, metadata) in enumerate(rows):
            text = drt_spec.encode_json(metadata)
            assert opened.record(number)[8 : 8 + len(text)] == text
        return
    files = drt_spec.encode_cache(
        opened.manifest.source_name, rows, max_shard_bytes=limit, format_version=opened.manifest.format_version
    )
    assert files.index == (folder / "index.bin").read_bytes()
    assert files.shards == [(folder / "shards" / shard.name).read_bytes() for shard in opened.manifest.shards]
    rewritten, original = drt_spec.parse_manifest(files.manifest), opened.manifest
    assert rewritten.shards == original.shards and rewritten.schema == original.schema
    if cache.startswith("v3/"):
        assert rewritten.cache_id == original.cache_id


@pytest.mark.parametrize("cache", [name for name in CACHES if name.startswith("v3/")])
def test_identity_is_derived_from_the_source_name(cache: str) -> None:
    manifest = drt_spec.open_cache(GOLDEN / cache).manifest
    assert drt_spec.cache_id_of(manifest.source_name) == manifest.cache_id


@pytest.mark.parametrize("algo", drt_spec.ALGOS)
@pytest.mark.parametrize("format_version", [2, 3])
def test_encoded_caches_decode_to_the_same_rows(tmp_path: Path, algo: str, format_version: int) -> None:
    from support import sources

    rows = [*sources.all_kinds(60), (bytes(5000), sources.all_kinds(1)[0][1])]
    folder = drt_spec.write_cache(tmp_path, "x", rows, algo=algo, max_shard_bytes=700, format_version=format_version)
    opened = drt_spec.open_cache(folder)
    opened.verify()
    assert len(opened.shards) > 3
    for row, (payload, metadata) in zip(opened.rows(), rows, strict=True):
        assert row.payload == payload
        assert all(drt_spec.same_value(row.metadata[name], value) for name, value in metadata.items())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"), (0.00001, "0.00001"), (9999999999999998.0, "9999999999999998.0"), (-0.0, "-0.0"),
        (1e16, "1e+16"), (123456789012345680.0, "1.2345678901234568e+17"), (1e-6, "1e-6"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (100.0, "100.0"), (0.1, "0.1"), (-2.25, "-2.25"),
    ],
)  # fmt: skip
def test_floats_are_spelt_as_the_format_says(value: float, text: str) -> None:
    assert drt_spec.format_float(value) == text
    assert float(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)


def test_no_columns_at_all_is_a_valid_cache(tmp_path: Path) -> None:
    folder = drt_spec.write_cache(tmp_path, "bare", [(b"a", {}), (b"b", {})])
    opened = drt_spec.open_cache(folder)
    opened.verify()
    assert [row.payload for row in opened.rows()] == [b"a", b"b"]


DAMAGED = sorted(path.parent.name for path in (GOLDEN / "damaged").glob("*/EXPECT.json"))


def rows_of(cache: Path) -> list[tuple[bytes, dict[str, Any]]]:
    opened = drt_spec.open_cache(cache)
    opened.verify()
    return [(row.payload, row.metadata) for row in opened.rows()]


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_cache_is_refused_somewhere_unless_it_may_be_accepted(case: str) -> None:
    expectation = json.loads((GOLDEN / "damaged" / case / "EXPECT.json").read_text())
    want, base = expectation["want"], GOLDEN / "damaged" / f"_base_{expectation['base']}" / "cache"
    cache = GOLDEN / "damaged" / case / "cache"
    if want == "accept" or want.startswith("accept ("):
        assert rows_of(cache) == rows_of(base)
        return
    try:
        rows = rows_of(cache)
    except (drt_spec.SpecError, OSError):
        return
    assert want.startswith("reject, or accept") and rows == rows_of(base), "a broken rule went unnoticed"
