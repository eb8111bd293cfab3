"""Made-up samples, described by a small JSON object so that two interpreters can make the same ones.

Sources yield plain `(payload, metadata)` tuples, which every version of the library takes for a `CacheInput`.
"""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

Sample = tuple[bytes, dict[str, Any]]

EXTREME_INTS = [0, 1, -1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, -7, 42, 10**18, -(10**18), 3]
EXTREME_FLOATS = [
    0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, 1e16, 9999999999999998.0, 1e-5, 9.999e-6, 1.7976931348623157e308,
    90.28571428571429, 0.9452706955539223, 1.6094379124341003, 0.21350549161434174, 2.2250738585072014e-308,
    123456789012345680.0, -1e-7, 1 / 3,
]  # fmt: skip
TRICKY_TEXTS = [
    "", "plain", "日本語", "naïve", "e\u0301", "😀🏽", 'quote " back \\ slash /', "tab\tnl\ncr\rbs\bff\f",
    "nul\x00one\x01us\x1fdel\x7f", "line\u2028para\u2029", "\ufffd\uffff", "x" * 300,
]  # fmt: skip


class ListSource:
    """A source over rows that are already in memory; it may be iterated again."""

    def __init__(self, name: Any, rows: Any) -> None:
        self.name = name
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class CountingSource:
    """A source over any iterable that counts how many rows were pulled from it."""

    def __init__(self, name: str, rows: Any) -> None:
        self.name = name
        self.rows = rows
        self.pulled = 0
        self.iterations = 0

    def __iter__(self) -> Iterator[Any]:
        self.iterations += 1
        for row in self.rows:
            self.pulled += 1
            yield row


def noise(tag: str, size: int) -> bytes:
    """Bytes that do not compress and are the same on every run."""
    return hashlib.shake_128(tag.encode()).digest(size)


def mini_payload(i: int) -> bytes:
    """From the payload alone one can tell which sample it is and whether it is whole."""
    return struct.pack("<I", i) * (1 + i % 7)


def mini(n: int) -> list[Sample]:
    return [(mini_payload(i), {"i": i, "cls": i % 3, "s": f"row-{i}"}) for i in range(n)]


def ten_rows(n: int = 10) -> list[Sample]:
    return [(b"p%d" % i, {"i": i}) for i in range(n)]


def all_kinds(n: int = 40) -> list[Sample]:
    """All four kinds with their extreme values, a Unicode key, and empty payloads among others."""
    rows = []
    for i in range(n):
        metadata = {
            "text": TRICKY_TEXTS[i % len(TRICKY_TEXTS)],
            "flag": i % 3 == 0,
            "count": EXTREME_INTS[i % len(EXTREME_INTS)],
            "score": EXTREME_FLOATS[i % len(EXTREME_FLOATS)],
            "ключ-日本": i,
        }
        rows.append((noise(f"all-kinds-{i}", (i * 37) % 400) if i % 5 else b"", metadata))
    return rows


def random_rows(n: int, seed: int) -> list[Sample]:
    """Random rows: compressible and incompressible payloads, floats of any bit pattern that is finite."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        while True:
            (score,) = struct.unpack("<d", rng.randbytes(8))
            if math.isfinite(score):
                break
        size = rng.choice([0, 1, 3, 17, 100, 255, 1000])
        payload = rng.randbytes(size) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * size
        metadata = {
            "label": rng.randrange(-(2**63), 2**63),
            "score": score,
            "split": rng.choice(["train", "val", "test", "日本", ""]),
            "ok": rng.random() < 0.5,
        }
        rows.append((payload, metadata))
    return rows


def tame_rows(n: int, seed: int = 0) -> list[Sample]:
    """Rows whose floats have few decimals, which the public package also returns bit for bit."""
    rng = random.Random(seed)
    return [
        (
            noise(f"tame-{seed}-{i}", rng.choice([0, 5, 64, 300])),
            {
                "label": i,
                "score": rng.randrange(-4000, 4000) / 8,
                "split": rng.choice(["train", "val"]),
                "ok": i % 2 == 0,
            },
        )
        for i in range(n)
    ]


def big_rows(n: int, size: int) -> list[Sample]:
    return [(noise(f"big-{i}", size), {"i": i}) for i in range(n)]


MAKERS: dict[str, Callable[..., list[Sample]]] = {
    "mini": mini,
    "ten_rows": ten_rows,
    "all_kinds": all_kinds,
    "random_rows": random_rows,
    "tame_rows": tame_rows,
    "big_rows": big_rows,
}


def build(description: dict[str, Any]) -> ListSource:
    """Make a source from `{"name": ..., "maker": one of MAKERS, "args": {...}}`."""
    return ListSource(description["name"], MAKERS[description["maker"]](**description.get("args", {})))
