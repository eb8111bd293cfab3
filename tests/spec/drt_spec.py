"""The cache format once more, in plain Python, written from the format's prose and from nothing else.

This module is slow and simple on purpose. It shares no code with the library, so where the two agree, the prose is
what both of them implement; where they differ, one of the three is wrong. `pyarrow` reads and writes
`metadata.arrow`; it is imported when a table is touched, so that records can be decoded without it.

Reading:

    cache = open_cache(path, position=0)
    for row in cache.rows():
        row.payload, row.metadata, row.cache_id, row.sample_id

Writing, version 3 by default:

    write_cache(base, "name", [(b"payload", {"label": 1})], algo="none", max_shard_bytes=1 << 26)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INDEX_ROW = struct.Struct("<QQQ")  # shard number, offset, length
ENVELOPE = struct.Struct("<Q")  # length of the JSON text
LZ4_PREFIX = struct.Struct("<I")  # length of the payload before compression
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
KINDS = ("bool", "int", "float", "string")
ALGOS = ("none", "lz4")
DEFAULT_MAX_SHARD_BYTES = 64 * 1024 * 1024
RESERVED_COLUMNS = ("cache_id", "sample_id", "weight")

Metadata = Mapping[str, Any]


class SpecError(ValueError):
    """The bytes break a rule of the format; the text says which one and where."""


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cache_id_of(source_name: str) -> int:
    """Identity that a version 3 writer derives from a source's name."""
    first_eight = hashlib.sha256(source_name.encode("utf-8")).digest()[:8]
    return int.from_bytes(first_eight, "big") & INT64_MAX


# ------------------------------------------------------------------------------------------------ record: JSON text


def format_float(value: float) -> str:
    """Shortest decimal that reads back to the same double, in the writer's notation."""
    if not math.isfinite(value):
        raise SpecError(f"{value!r} has no spelling in a record")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0.0:
        return sign + "0.0"
    digits, exponent = _shortest_digits(abs(value))
    if -5 <= exponent <= 15:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{exponent:+d}" if exponent > 0 else f"{sign}{mantissa}e{exponent}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """Significant digits without trailing zeros, and the decimal exponent of the first one."""
    mantissa, _, exponent_text = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(exponent_text or 0) + len(whole) - 1
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits.lstrip("0").rstrip("0")
    return digits, exponent - leading


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def format_string(text: str) -> str:
    out = ['"']
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif ord(char) < 0x20:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    out.append('"')
    return "".join(out)


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise SpecError(f"integer {value} does not fit 64 bits")
        return "int"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{value!r} is not finite")
        return "float"
    if isinstance(value, str):
        return "string"
    raise SpecError(f"metadata cannot hold {type(value).__name__}")


def format_value(value: Any) -> str:
    kind = kind_of(value)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int":
        return str(int(value))
    if kind == "float":
        return format_float(value)
    return format_string(value)


def column_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode("utf-8"))


def encode_json(metadata: Metadata) -> bytes:
    """A row's metadata as it stands in its record."""
    parts = (f"{format_string(name)}:{format_value(metadata[name])}" for name in column_order(metadata))
    return ("{" + ",".join(parts) + "}").encode("utf-8")


@dataclass(frozen=True)
class _NotFinite:
    """`null` in a record: the value is in metadata.arrow only."""


def decode_json(text: bytes, schema: list[tuple[str, str]]) -> dict[str, Any]:
    """Metadata of one record, keys in schema order; `_NotFinite()` stands for a float written as null."""

    def refuse_constant(name: str) -> None:
        raise SpecError(f"{name} is not JSON")

    def whole_number(digits: str) -> Any:
        value = int(digits)
        return value if INT64_MIN <= value <= INT64_MAX else float(digits)

    try:
        found = json.loads(
            text.decode("utf-8", "strict"),
            parse_constant=refuse_constant,
            parse_int=whole_number,
            parse_float=float,
        )
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpecError(f"record holds no JSON object: {error}") from error
    if not isinstance(found, dict):
        raise SpecError("record's JSON is not an object")
    if set(found) != {name for name, _ in schema}:
        raise SpecError(f"record has the keys {sorted(found)}, the manifest {[name for name, _ in schema]}")
    row: dict[str, Any] = {}
    for name, kind in schema:
        value = found[name]
        if value is None and kind == "float":
            row[name] = _NotFinite()
            continue
        fits = {
            "bool": isinstance(value, bool),
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, float) and math.isfinite(value),
            "string": isinstance(value, str),
        }[kind]
        if not fits:
            raise SpecError(f"column {name!r} is {kind}, the record holds {value!r}")
        if kind == "string":
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise SpecError(f"column {name!r} holds a lone surrogate") from error
        row[name] = value
    return row


# ------------------------------------------------------------------------------------------------- record: payload


def lz4_literals(payload: bytes) -> bytes:
    """A valid LZ4 block that stores everything as literals (any decoder must take it)."""
    length = len(payload)
    if length < 15:
        return bytes([length << 4]) + payload
    rest = length - 15
    return bytes([0xF0]) + b"\xff" * (rest // 255) + bytes([rest % 255]) + payload


def lz4_decode(block: bytes, length: int) -> bytes:
    """Decode one raw LZ4 block to exactly `length` bytes."""
    if length > 255 * len(block) + 64:
        raise SpecError(f"an LZ4 block of {len(block)} bytes cannot hold {length}")
    out = bytearray()
    at = 0

    def byte() -> int:
        nonlocal at
        if at >= len(block):
            raise SpecError("LZ4 block ends in the middle of a sequence")
        at += 1
        return block[at - 1]

    def extended(value: int) -> int:
        if value == 15:
            while True:
                more = byte()
                value += more
                if more != 255:
                    break
        return value

    while True:
        token = byte()
        literals = extended(token >> 4)
        if at + literals > len(block):
            raise SpecError("LZ4 literals run past the block")
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            break
        distance = byte() | byte() << 8
        if distance == 0 or distance > len(out):
            raise SpecError(f"LZ4 match distance {distance} points before the payload")
        match = extended(token & 15) + 4
        if len(out) + match > length:
            raise SpecError("LZ4 block decodes to more than its stated length")
        if distance >= match:
            start = len(out) - distance
            out += out[start : start + match]
        else:
            pattern = bytes(out[-distance:])
            out += (pattern * (match // distance + 1))[:match]
    if len(out) != length:
        raise SpecError(f"LZ4 block decodes to {len(out)} bytes, its prefix says {length}")
    return bytes(out)


def encode_payload(payload: bytes, algo: str) -> bytes:
    if algo == "none":
        return payload
    return LZ4_PREFIX.pack(len(payload)) + lz4_literals(payload)


def decode_payload(stored: bytes, algo: str) -> bytes:
    if algo == "none":
        return stored
    if len(stored) < LZ4_PREFIX.size:
        raise SpecError("compressed record is shorter than its length prefix")
    (length,) = LZ4_PREFIX.unpack_from(stored)
    return lz4_decode(stored[LZ4_PREFIX.size :], length)


def encode_record(payload: bytes, metadata: Metadata, algo: str = "none") -> bytes:
    text = encode_json(metadata)
    return ENVELOPE.pack(len(text)) + text + encode_payload(payload, algo)


# -------------------------------------------------------------------------------------------------------- manifest


@dataclass(frozen=True)
class Shard:
    name: str
    uncompressed_byte_len: int
    byte_len: int
    algo: str
    ratio: float
    sha256: str


@dataclass(frozen=True)
class Manifest:
    format_version: int
    cache_id: int | None
    source_name: str
    sample_count: int
    schema: list[tuple[str, str]]
    metadata_sha256: str
    index_sha256: str
    shards: list[Shard]
    extra: dict[str, Any] = field(default_factory=dict)


_TOP_KEYS = {
    "format_version", "cache_id", "source_name", "sample_count", "metadata_schema", "metadata_sha256", "index_sha256",
    "shards",
}  # fmt: skip


def parse_manifest(text: bytes) -> Manifest:
    """Read manifest.json; keys the format does not name are kept in `extra`."""

    def refuse_repeats(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return pairs

    try:
        pairs = json.loads(text.decode("utf-8"), object_pairs_hook=refuse_repeats)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpecError(f"manifest.json is not JSON: {error}") from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise SpecError("manifest.json is not an object")
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise SpecError("manifest.json names a top-level key twice")
    top = dict(pairs)

    def need(table: dict[str, Any], key: str, kind: type) -> Any:
        if key not in table:
            raise SpecError(f"manifest.json has no {key}")
        value = table[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise SpecError(f"manifest.json: {key} is {value!r}")
        return value

    version = need(top, "format_version", int)
    if version not in (2, 3):
        raise SpecError(f"format version {version} is neither 2 nor 3")
    cache_id = None
    if version == 3:
        cache_id = need(top, "cache_id", int)
        if not 0 <= cache_id < 2**64:
            raise SpecError(f"cache_id {cache_id} is no unsigned 64-bit number")

    schema: list[tuple[str, str]] = []
    for entry in need(top, "metadata_schema", list):
        column = dict(entry)
        name, kind = need(column, "name", str), need(column, "kind", str)
        if kind not in KINDS:
            raise SpecError(f"column {name!r} has the unknown kind {kind!r}")
        if name in (known for known, _ in schema):
            raise SpecError(f"column {name!r} is listed twice")
        schema.append((name, kind))

    shards: list[Shard] = []
    for entry in need(top, "shards", list):
        table = dict(entry)
        compression = dict(need(table, "compression", list))
        algo = need(compression, "algo", str)
        if algo not in ALGOS:
            raise SpecError(f"unknown compression {algo!r}")
        name = need(table, "name", str)
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise SpecError(f"shard name {name!r} is not one plain path segment")
        shards.append(
            Shard(
                name=name,
                uncompressed_byte_len=need(table, "uncompressed_byte_len", int),
                byte_len=need(table, "byte_len", int),
                algo=algo,
                ratio=float(need(compression, "ratio", (int, float))),  # type: ignore[arg-type]
                sha256=need(table, "sha256", str).lower(),
            )
        )
    return Manifest(
        format_version=version,
        cache_id=cache_id,
        source_name=need(top, "source_name", str),
        sample_count=need(top, "sample_count", int),
        schema=schema,
        metadata_sha256=need(top, "metadata_sha256", str).lower(),
        index_sha256=need(top, "index_sha256", str).lower(),
        shards=shards,
        extra={key: value for key, value in top.items() if key not in _TOP_KEYS},
    )


def format_manifest(manifest: Manifest) -> bytes:
    top: dict[str, Any] = {"format_version": manifest.format_version}
    if manifest.format_version == 3:
        top["cache_id"] = manifest.cache_id
    top["source_name"] = manifest.source_name
    top["sample_count"] = manifest.sample_count
    top["metadata_schema"] = [{"name": name, "kind": kind} for name, kind in manifest.schema]
    top["metadata_sha256"] = manifest.metadata_sha256
    top["index_sha256"] = manifest.index_sha256
    top["shards"] = [
        {
            "name": shard.name,
            "uncompressed_byte_len": shard.uncompressed_byte_len,
            "byte_len": shard.byte_len,
            "compression": {"algo": shard.algo, "ratio": shard.ratio},
            "sha256": shard.sha256,
        }
        for shard in manifest.shards
    ]
    top.update(manifest.extra)
    return json.dumps(top, indent=2, ensure_ascii=False).encode("utf-8")


# --------------------------------------------------------------------------------------------------- metadata.arrow


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    return {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "string": pa.utf8()}


def encode_metadata(schema: list[tuple[str, str]], rows: list[Metadata]) -> bytes:
    import pyarrow as pa

    types = _arrow_types()
    arrow_schema = pa.schema([pa.field(name, types[kind], nullable=False) for name, kind in schema])
    arrays = [pa.array([row[name] for row in rows], type=types[kind]) for name, kind in schema]
    if arrays:
        batch = pa.record_batch(arrays, schema=arrow_schema)
    else:
        batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), type=pa.struct([])))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, arrow_schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_metadata(data: bytes, schema: list[tuple[str, str]], sample_count: int) -> dict[str, list[Any]]:
    """Columns of metadata.arrow, in schema order."""
    import pyarrow as pa

    try:
        reader = pa.ipc.open_file(pa.py_buffer(data))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)
    except pa.ArrowException as error:
        raise SpecError(f"metadata.arrow: {error}") from error
    types = _arrow_types()
    wanted = [(name, types[kind]) for name, kind in schema]
    found = [(column.name, column.type) for column in reader.schema]
    if found != wanted:
        raise SpecError(f"metadata.arrow has the columns {found}, the manifest {wanted}")
    if sum(batch.num_rows for batch in batches) != sample_count:
        raise SpecError("metadata.arrow has another number of rows than the manifest")
    columns: dict[str, list[Any]] = {}
    for number, (name, _) in enumerate(schema):
        values: list[Any] = []
        for batch in batches:
            if batch.column(number).null_count:
                raise SpecError(f"metadata.arrow: column {name!r} holds a null")
            values += batch.column(number).to_pylist()
        columns[name] = values
    return columns


# ----------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Row:
    payload: bytes
    metadata: dict[str, Any]
    cache_id: int
    sample_id: int


class Cache:
    """One cache folder, checked structurally when opened. Use `open_cache`."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.manifest = parse_manifest((path / "manifest.json").read_bytes())
        self.cache_id = position if self.manifest.cache_id is None else self.manifest.cache_id
        self.shards: list[bytes] = []
        for shard in self.manifest.shards:
            data = (path / "shards" / shard.name).read_bytes()
            if len(data) != shard.byte_len:
                raise SpecError(f"shard {shard.name} has {len(data)} bytes, the manifest says {shard.byte_len}")
            self.shards.append(data)
        self.index_bytes = (path / "index.bin").read_bytes()
        if len(self.index_bytes) != self.manifest.sample_count * INDEX_ROW.size:
            raise SpecError(f"index.bin has {len(self.index_bytes)} bytes for {self.manifest.sample_count} rows")
        self.index = list(INDEX_ROW.iter_unpack(self.index_bytes))
        for number, (shard_number, offset, length) in enumerate(self.index):
            if shard_number >= len(self.shards):
                raise SpecError(f"row {number} is in shard {shard_number}, which does not exist")
            if offset + length > len(self.shards[shard_number]):
                raise SpecError(f"row {number} reaches past the end of its shard")
        self.metadata_bytes = (path / "metadata.arrow").read_bytes()

    def columns(self) -> dict[str, list[Any]]:
        return decode_metadata(self.metadata_bytes, self.manifest.schema, self.manifest.sample_count)

    def record(self, sample_id: int) -> bytes:
        shard_number, offset, length = self.index[sample_id]
        return self.shards[shard_number][offset : offset + length]

    def row(self, sample_id: int, columns: dict[str, list[Any]] | None = None) -> Row:
        record = self.record(sample_id)
        if len(record) < ENVELOPE.size:
            raise SpecError(f"row {sample_id}: record of {len(record)} bytes has no envelope")
        (json_len,) = ENVELOPE.unpack_from(record)
        if json_len > len(record) - ENVELOPE.size:
            raise SpecError(f"row {sample_id}: the JSON text is longer than its record")
        text = record[ENVELOPE.size : ENVELOPE.size + json_len]
        metadata = decode_json(text, self.manifest.schema)
        for name, value in metadata.items():
            if isinstance(value, _NotFinite):
                columns = self.columns() if columns is None else columns
                metadata[name] = columns[name][sample_id]
        algo = self.manifest.shards[self.index[sample_id][0]].algo
        payload = decode_payload(record[ENVELOPE.size + json_len :], algo)
        return Row(payload, metadata, self.cache_id, sample_id)

    def rows(self) -> Iterator[Row]:
        for sample_id in range(self.manifest.sample_count):
            yield self.row(sample_id)

    def verify(self) -> None:
        """Recompute every checksum of the manifest and compare each record with its row of metadata.arrow."""
        if sha256_hex(self.metadata_bytes) != self.manifest.metadata_sha256:
            raise SpecError("metadata.arrow does not match its checksum")
        if sha256_hex(self.index_bytes) != self.manifest.index_sha256:
            raise SpecError("index.bin does not match its checksum")
        for shard, data in zip(self.manifest.shards, self.shards, strict=True):
            if sha256_hex(data) != shard.sha256:
                raise SpecError(f"shard {shard.name} does not match its checksum")
        columns = self.columns()
        for sample_id in range(self.manifest.sample_count):
            for name, value in self.row(sample_id, columns).metadata.items():
                if not same_value(value, columns[name][sample_id]):
                    raise SpecError(f"row {sample_id}: record and metadata.arrow differ in {name!r}")


def same_value(left: Any, right: Any) -> bool:
    """Equality of metadata values: same kind, and floats by their bits (any NaN equals any NaN)."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return struct.pack("<d", left) == struct.pack("<d", right)
    return type(left) is type(right) and left == right


def open_cache(path: str | os.PathLike[str], position: int = 0) -> Cache:
    """Open a cache of version 2 or 3.

    Args:
        path: Cache folder.
        position: Place of the path in the list being opened; it is the identity of a version 2 cache.

    Raises:
        SpecError: The folder breaks a rule of the format.
        OSError: A file the manifest needs is missing.
    """
    return Cache(Path(path), position)


# ----------------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True)
class Files:
    """The files of one cache as bytes, before anything touches a disk."""

    manifest: bytes
    metadata: bytes
    index: bytes
    shards: list[bytes]


def encode_cache(
    source_name: str,
    rows: Iterable[tuple[bytes, Metadata]],
    *,
    algo: str = "none",
    ratio: float = 1.0,
    max_shard_bytes: int = DEFAULT_MAX_SHARD_BYTES,
    format_version: int = 3,
) -> Files:
    """Encode rows to the files of a cache.

    Raises:
        SpecError: No rows, unequal schemas, or a value the format cannot hold.
    """
    schema: list[tuple[str, str]] | None = None
    kept: list[Metadata] = []
    shards: list[bytearray] = []
    payload_bytes: list[int] = []
    index = bytearray()
    for number, (payload, metadata) in enumerate(rows):
        row_schema = [(name, kind_of(metadata[name])) for name in column_order(metadata)]
        if schema is None:
            for name, _ in row_schema:
                if name in RESERVED_COLUMNS or name == "" or "\0" in name:
                    raise SpecError(f"column name {name!r} is reserved")
            schema = row_schema
        elif row_schema != schema:
            raise SpecError(f"row {number} has the columns {row_schema}, the first row {schema}")
        record = encode_record(payload, metadata, algo)
        if not shards or (shards[-1] and len(shards[-1]) + len(record) > max_shard_bytes):
            shards.append(bytearray())
            payload_bytes.append(0)
        index += INDEX_ROW.pack(len(shards) - 1, len(shards[-1]), len(record))
        shards[-1] += record
        payload_bytes[-1] += len(payload)
        kept.append(dict(metadata))
    if schema is None:
        raise SpecError("a cache holds at least one row")
    metadata_bytes = encode_metadata(schema, kept)
    manifest = Manifest(
        format_version=format_version,
        cache_id=cache_id_of(source_name) if format_version == 3 else None,
        source_name=source_name,
        sample_count=len(kept),
        schema=schema,
        metadata_sha256=sha256_hex(metadata_bytes),
        index_sha256=sha256_hex(bytes(index)),
        shards=[
            Shard(f"{number:06d}.bin", payload_bytes[number], len(data), algo, ratio, sha256_hex(bytes(data)))
            for number, data in enumerate(shards)
        ],
    )
    return Files(format_manifest(manifest), metadata_bytes, bytes(index), [bytes(shard) for shard in shards])


def write_cache(base: str | os.PathLike[str], source_name: str, rows: Iterable[tuple[bytes, Metadata]], **options: Any) -> Path:
    """Encode rows (see `encode_cache`) and write them as BASE/NAME; returns the cache folder."""
    files = encode_cache(source_name, rows, **options)
    folder = Path(base) / source_name
    (folder / "shards").mkdir(parents=True)
    for number, data in enumerate(files.shards):
        (folder / "shards" / f"{number:06d}.bin").write_bytes(data)
    (folder / "metadata.arrow").write_bytes(files.metadata)
    (folder / "index.bin").write_bytes(files.index)
    (folder / "manifest.json").write_bytes(files.manifest)
    return folder
