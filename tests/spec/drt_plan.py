"""Plan version 1 again, in plain Python, written from crates/drt-sampler/README.md. Slow, and meant to be read."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Sequence

DRAWS, PERMUTATION = 1, 2


def chacha8_block(key: bytes, nonce: int, counter: int) -> bytes:
    """One 64-byte block of ChaCha with 8 rounds, a 64-bit block counter and a 64-bit nonce."""
    start = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<QQ", counter, nonce))
    x = list(start)
    for _ in range(4):
        for a, b, c, d in (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), \
                          (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14):  # fmt: skip
            for to, by, mixed, bits in (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7):
                x[to] = (x[to] + x[by]) % 2**32
                turned = (x[mixed] ^ x[to]) << bits
                x[mixed] = turned % 2**32 | turned >> 32
    return struct.pack("<16I", *((s + t) % 2**32 for s, t in zip(start, x, strict=True)))


def key_stream(seed: int, domain: int, offset: int, length: int) -> bytes:
    """`length` bytes of the key stream from byte `offset` on."""
    key = seed.to_bytes(8, "little") + b"datasetrt/plan/1".ljust(24, b"\0")
    blocks = range(offset // 64, (offset + length + 63) // 64)
    return b"".join(chacha8_block(key, domain, block) for block in blocks)[offset % 64 :][:length]


def shares(weights: Sequence[float]) -> list[int]:
    """What each row gets, in units of 2^-64 of a bucket: they sum to one bucket per row."""
    exponent = math.frexp(max(weights))[1] - 1
    ratios = [weight.as_integer_ratio() for weight in weights]
    values = [(a << max(94 - exponent, 0)) // (b << max(exponent - 94, 0)) for a, b in ratios]
    floors = [(len(values) * value << 64) // sum(values) for value in values]
    spare = (len(values) << 64) - sum(floors)
    return [floor + (row < spare) for row, floor in enumerate(floors)]


def alias_table(weights: Sequence[float]) -> list[tuple[int, int]]:
    """The threshold and the alias of each bucket."""
    share, bucket = shares(weights), 2**64
    light = deque(row for row, s in enumerate(share) if s < bucket)
    heavy = deque(row for row, s in enumerate(share) if s >= bucket)
    table = [(0, 0)] * len(share)
    row = heavy.popleft()
    left = share[row]
    while True:
        if left < bucket:
            opened, row = row, heavy.popleft()
            table[opened], left = (left, row), share[row] - (bucket - left)
        elif light:
            opened = light.popleft()
            table[opened], left = (share[opened], row), left - (bucket - share[opened])
        else:
            table[row] = (bucket - 1, row)
            if not heavy:
                return table
            row = heavy.popleft()
            left = share[row]


def multinomial(population: int, table: list[tuple[int, int]] | None, seed: int, position: int) -> int:
    """One draw with replacement; no table means that all rows are equally likely."""
    product = population * int.from_bytes(key_stream(seed, DRAWS, 16 * position, 16), "little")
    bucket, fraction = product >> 128, (product >> 64) % 2**64
    return bucket if table is None or fraction < table[bucket][0] else table[bucket][1]


def permutation(population: int, seed: int, position: int) -> int:
    """One draw of a permutation plan."""
    epoch, index = divmod(position, population)
    blocks = -(-population // 8) if population <= 256 else 2
    words = struct.unpack(f"<{8 * blocks}Q", key_stream(seed, PERMUTATION, 64 * blocks * epoch, 64 * blocks))
    if population <= 256:
        order = list(range(population))
        for last in range(population - 1, 0, -1):
            other = words[last] * (last + 1) >> 64
            order[last], order[other] = order[other], order[last]
        return order[index]
    height = math.isqrt(population - 1) + 1
    height += height % 2
    width = -(-population // height)
    while True:
        line, column = divmod(index, width)
        for line_key, column_key in zip(words[0:12:2], words[1:12:2], strict=True):
            line = (line + (mix((column + line_key) % 2**64) * height >> 64)) % height
            column = (column + (mix((line + column_key) % 2**64) * width >> 64)) % width
        index = line * width + column
        if index < population:
            return index


def mix(z: int) -> int:
    """The output function of SplitMix64."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31
