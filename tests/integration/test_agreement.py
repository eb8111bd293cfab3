"""The public package reads what we write, we read what it writes, and the bytes are the same.

`drt_spec`, the format in plain Python, is the third voice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="drt_spec reads metadata.arrow with pyarrow")

import drt_spec
from support import drt as subject
from support import sources, values

LIMIT = 1500  # bytes of a shard, so that there are many
# The public package returns some floats one unit off, so whole values are compared on floats it returns exactly.
TAME = {"name": "tame", "maker": "tame_rows", "args": {"n": 150}}
WRITTEN = [
    TAME,
    {"name": "all kinds", "maker": "all_kinds", "args": {"n": 60}},
    {"name": "naïve 日本 😀", "maker": "mini", "args": {"n": 40}},
    {"name": "random", "maker": "random_rows", "args": {"n": 150, "seed": 3}},
    {"name": "one row", "maker": "ten_rows", "args": {"n": 1}},
    {"name": "big", "maker": "big_rows", "args": {"n": 5, "size": 70_000}},
]
NAMES = [description["name"] for description in WRITTEN]
ALGOS = ("none", "lz4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, oracle: Any) -> dict[tuple[str, str, str], Path]:
    """Every source written by both libraries with both codecs: (writer, codec, name) to its folder."""
    root = tmp_path_factory.mktemp("agreement")
    made: dict[tuple[str, str, str], Path] = {}
    for algo in ALGOS:
        ours, theirs = root / "ours" / algo, root / "theirs" / algo
        for path in oracle.write(theirs, WRITTEN, algo=algo, ratio=2.5 if algo == "lz4" else 1.0, max_shard_bytes=LIMIT):
            made["theirs", algo, path.name] = path
        for description in WRITTEN:
            rows = sources.build(description).rows
            path = subject.write(
                ours, description["name"], rows, algo=algo, ratio=2.5 if algo == "lz4" else 1.0, max_shard_bytes=LIMIT
            )
            made["ours", algo, path.name] = path
    return made


def expected(name: str) -> list[dict[str, Any]]:
    (description,) = [each for each in WRITTEN if each["name"] == name]
    cache_id = drt_spec.cache_id_of(name)
    return [values.expected_sample(*row, cache_id, i) for i, row in enumerate(sources.build(description).rows)]


def without_floats(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**sample, "metadata": [field for field in sample["metadata"] if field[1] != "float"]} for sample in samples]


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("name", NAMES)
def test_the_public_package_reads_ours(folders: Any, oracle: Any, name: str, algo: str) -> None:
    paths = [str(folders["ours", algo, name])]
    plain = oracle("read", paths=paths)
    assert without_floats(plain) == without_floats(expected(name))
    if name not in ("random", "all kinds"):  # its own lossy floats make it refuse rows when it validates
        assert oracle("read", paths=paths, validate=True) == expected(name)


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("name", NAMES)
def test_the_public_package_verifies_ours(folders: Any, oracle: Any, name: str, algo: str) -> None:
    """Opening with validation recomputes every checksum; floats of the table are exact in both libraries."""
    table = oracle("metadata", paths=[str(folders["ours", algo, name])], validate=True)
    dataset = subject.open_dataset(folders["theirs", algo, name])
    assert table == values.plain_table(dataset.get_metadata())


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("name", NAMES)
def test_we_read_the_public_packages(folders: Any, name: str, algo: str, validate: bool, io: str) -> None:
    for writer in ("theirs", "ours"):
        dataset = subject.open_dataset(folders[writer, algo, name], io=io, validate=validate)
        if subject.IS_OURS:
            assert [values.plain_sample(sample) for sample in dataset] == expected(name)
        assert len(dataset) == len(expected(name))


@pytest.mark.parametrize("name", NAMES)
def test_index_and_shards_are_the_same_bytes(folders: Any, name: str) -> None:
    ours, theirs = folders["ours", "none", name], folders["theirs", "none", name]
    assert (ours / "index.bin").read_bytes() == (theirs / "index.bin").read_bytes()
    shards = sorted(entry.name for entry in (theirs / "shards").iterdir())
    assert sorted(entry.name for entry in (ours / "shards").iterdir()) == shards
    for shard in shards:
        assert (ours / "shards" / shard).read_bytes() == (theirs / "shards" / shard).read_bytes(), shard


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("name", NAMES)
def test_manifests_say_the_same(folders: Any, name: str, algo: str) -> None:
    ours, theirs = (json.loads((folders[writer, algo, name] / "manifest.json").read_text()) for writer in ("ours", "theirs"))
    additions = [key for key in ours if key not in theirs]
    assert all(key.startswith("drt_") for key in additions)
    assert [key for key in ours if key not in additions] == list(theirs)
    for manifest in (ours, theirs):
        del manifest["metadata_sha256"]  # other padding is allowed, see the test of the columns
        if algo == "lz4":  # another compressor is allowed
            del manifest["index_sha256"]
            assert all(shard["compression"] == {"algo": "lz4", "ratio": 2.5} for shard in manifest["shards"])
            manifest["shards"] = sum(shard["uncompressed_byte_len"] for shard in manifest["shards"])
    assert {key: ours[key] for key in theirs} == theirs


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("name", NAMES)
def test_the_format_in_plain_python_reads_and_verifies_ours(folders: Any, name: str, algo: str) -> None:
    cache = drt_spec.open_cache(folders["ours", algo, name])
    cache.verify()
    rows = [values.expected_sample(row.payload, row.metadata, row.cache_id, row.sample_id) for row in cache.rows()]
    assert rows == expected(name)
    assert cache.manifest.format_version == 3 and cache.manifest.source_name == name


@pytest.mark.parametrize("name", NAMES)
def test_the_format_in_plain_python_encodes_the_same_bytes(folders: Any, name: str) -> None:
    (description,) = [each for each in WRITTEN if each["name"] == name]
    files = drt_spec.encode_cache(name, sources.build(description).rows, max_shard_bytes=LIMIT)
    folder = folders["ours", "none", name]
    assert files.index == (folder / "index.bin").read_bytes()
    assert files.shards == [entry.read_bytes() for entry in sorted((folder / "shards").iterdir())]


@pytest.mark.parametrize("name", NAMES)
def test_metadata_file_has_the_columns_the_format_demands(folders: Any, name: str) -> None:
    import pyarrow as pa

    ours, theirs = (
        pa.ipc.open_file(pa.memory_map(str(folders[writer, "none", name] / "metadata.arrow"))) for writer in ("ours", "theirs")
    )
    assert ours.schema == theirs.schema  # names, types, and not nullable
    assert ours.num_record_batches == 1
    assert ours.read_all().equals(theirs.read_all())
    assert not ours.schema.metadata


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("format_version", [2, 3])
def test_we_read_what_the_format_in_plain_python_writes(base: Path, algo: str, format_version: int) -> None:
    rows = sources.all_kinds(40) if subject.IS_OURS else sources.tame_rows(40)
    path = drt_spec.write_cache(base, "x", rows, algo=algo, max_shard_bytes=700, format_version=format_version)
    cache_id = drt_spec.cache_id_of("x") if format_version == 3 else 0
    wanted = [values.expected_sample(*row, cache_id, i) for i, row in enumerate(rows)]
    for io in subject.IO_MODES:
        for validate in (False, True):
            dataset = subject.open_dataset(path, io=io, validate=validate)
            assert [values.plain_sample(sample) for sample in dataset] == wanted


@pytest.mark.ours
def test_other_readers_open_a_cache_with_a_fingerprint(base: Path, oracle: Any) -> None:
    source = sources.ListSource("printed", sources.ten_rows())
    source.fingerprint = "v1"  # type: ignore[attr-defined]
    (result,) = subject.write_results(base, source)
    assert json.loads((result.path / "manifest.json").read_text())["drt_fingerprint"] == "v1"
    plain = [values.expected_sample(*row, drt_spec.cache_id_of("printed"), i) for i, row in enumerate(source.rows)]
    assert oracle("read", paths=[str(result.path)], validate=True) == plain
    drt_spec.open_cache(result.path).verify()


def test_the_public_package_reads_a_cache_without_columns(base: Path, oracle: Any) -> None:
    path = subject.write(base, "bare", [(b"a", {}), (b"bc", {}), (b"", {})])
    samples = oracle("read", paths=[str(path)], validate=True)
    assert samples == [
        values.expected_sample(data, {}, drt_spec.cache_id_of("bare"), i) for i, data in enumerate([b"a", b"bc", b""])
    ]
    assert len(oracle("metadata", paths=[str(path)])["rows"]) == 3


def test_columns_may_stand_in_any_order_in_a_foreign_cache(base: Path) -> None:
    """A reader follows the manifest's order, whatever it is."""
    import pyarrow as pa

    path = drt_spec.write_cache(base, "x", [(b"p", {"a": 1, "b": "t"})])
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["metadata_schema"].reverse()
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("b", pa.utf8(), False), pa.field("a", pa.int64(), False)])
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(["t"]), pa.array([1])], schema=schema))
    (path / "metadata.arrow").write_bytes(sink.getvalue().to_pybytes())
    manifest["metadata_sha256"] = drt_spec.sha256_hex((path / "metadata.arrow").read_bytes())
    (path / "manifest.json").write_text(json.dumps(manifest))
    dataset = subject.open_dataset(path, validate=True)
    assert list(next(iter(dataset)).metadata.items()) == [("b", "t"), ("a", 1)]
    assert dataset.get_metadata().columns == ["cache_id", "sample_id", "b", "a", "weight"]


def test_records_may_lie_in_any_order_with_gaps_and_be_shared(base: Path) -> None:
    rows = [(b"p%d" % i, {"i": i}) for i in range(4)]
    path = drt_spec.write_cache(base, "x", rows)
    cache = drt_spec.open_cache(path)
    shard = b"".join(b"gap" * number + cache.record(number) for number in reversed(range(4)))
    index = b""
    for number in range(4):
        record = cache.record(number)
        index += drt_spec.INDEX_ROW.pack(0, shard.index(record), len(record))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["shards"][0] |= {"byte_len": len(shard), "sha256": drt_spec.sha256_hex(shard)}
    manifest["index_sha256"] = drt_spec.sha256_hex(index)
    (path / "shards" / "000000.bin").write_bytes(shard)
    (path / "index.bin").write_bytes(index)
    (path / "manifest.json").write_text(json.dumps(manifest))
    for io in subject.IO_MODES:
        dataset = subject.open_dataset(path, io=io, validate=True)
        assert [(sample.data, sample.metadata) for sample in dataset] == rows


def test_one_shard_may_be_compressed_and_another_not(base: Path) -> None:
    """Compression belongs to the shard: join two caches of two codecs by hand."""
    rows = sources.tame_rows(20)
    plain = drt_spec.encode_cache("x", rows[:12])
    packed = drt_spec.encode_cache("x", rows[12:], algo="lz4")
    index = plain.index + b"".join(
        drt_spec.INDEX_ROW.pack(1, offset, length) for _, offset, length in drt_spec.INDEX_ROW.iter_unpack(packed.index)
    )
    metadata = drt_spec.encode_metadata(drt_spec.parse_manifest(plain.manifest).schema, [row for _, row in rows])
    manifest = json.loads(plain.manifest)
    manifest["shards"] += [{**json.loads(packed.manifest)["shards"][0], "name": "packed.bin"}]
    manifest |= {
        "sample_count": 20,
        "index_sha256": drt_spec.sha256_hex(index),
        "metadata_sha256": drt_spec.sha256_hex(metadata),
    }
    path = base / "x"
    (path / "shards").mkdir(parents=True)
    (path / "shards" / "000000.bin").write_bytes(plain.shards[0])
    (path / "shards" / "packed.bin").write_bytes(packed.shards[0])
    (path / "index.bin").write_bytes(index)
    (path / "metadata.arrow").write_bytes(metadata)
    (path / "manifest.json").write_text(json.dumps(manifest))
    for io in subject.IO_MODES:
        dataset = subject.open_dataset(path, io=io, validate=True)
        assert [(sample.data, dict(sample.metadata)) for sample in dataset] == rows


def test_windows_in_order_equal_the_public_packages(folders: Any, oracle: Any) -> None:
    path = folders["theirs", "none", "tame"]
    dataset = subject.open_dataset(path)
    dataset.set_epoch_len(400)
    theirs = oracle("read", paths=[str(path)], count=400)
    assert [values.plain_sample(sample) for sample in dataset] == theirs
