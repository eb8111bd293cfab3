"""Finding the bytes of a record, and changing them."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

INDEX_ROW = struct.Struct("<QQQ")


def place(path: Path, row: int) -> tuple[Path, int, int]:
    """Shard file, offset and length of one record."""
    shard, offset, length = INDEX_ROW.unpack_from((path / "index.bin").read_bytes(), row * INDEX_ROW.size)
    name = json.loads((path / "manifest.json").read_text())["shards"][shard]["name"]
    return path / "shards" / name, offset, length


def flip(file: Path, at: int, mask: int = 0x10) -> None:
    with open(file, "r+b") as opened:
        opened.seek(at)
        (byte,) = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ mask]))


def assert_names_the_record(error: BaseException, path: Path, row: int) -> None:
    shard, offset, _ = place(path, row)
    message = str(error)
    assert str(path) in message or str(path) in str(error.path), message  # type: ignore[attr-defined]
    message = message.replace(str(path), "CACHE")  # the path holds numbers of its own
    assert shard.name in message and re.search(rf"\b{row}\b", message), message
    assert re.search(rf"\b{offset}\b", message), f"no offset {offset} in: {message}"
