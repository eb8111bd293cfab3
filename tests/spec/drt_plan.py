"""Plan version 1 again, in plain Python, written from crates/drt-sampler/README.md. Slow, and meant to be read."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Sequence

DRAWS, PERMUTATION, WEIGHTED_ORDER, MIXTURE, GROUPS = 1, 2, 3, 4, 5


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


def weighted_order(weights: Sequence[float], seed: int, epoch: int) -> list[int]:
    """All rows without replacement, by weight. The logarithms are this machine's: their last bit may differ from the crate's."""
    start = 64 * -(-len(weights) // 8) * epoch
    words = struct.unpack(f"<{len(weights)}Q", key_stream(seed, WEIGHTED_ORDER, start, 8 * len(weights)))
    keys = []
    for row, (word, weight) in enumerate(zip(words, weights, strict=True)):
        exponential = -math.log1p(-word / 2**64) if word < 2**63 else -math.log((2**64 - word) / 2**64)
        mantissa, exponent = math.frexp(weight)
        quotient, more = math.frexp(exponential / (2 * mantissa))
        keys.append((more - exponent, quotient, row) if quotient else (-math.inf, 0.0, row))
    return [row for *_, row in sorted(keys)]


def mixture(share_of: Sequence[float], seed: int, position: int) -> tuple[int, int]:
    """The component at a position, and which of the component's positions it is."""
    exponent = math.frexp(max(share_of))[1] - 1
    ratios = [share.as_integer_ratio() for share in share_of]
    units = [max((a << max(94 - exponent, 0)) // (b << max(exponent - 94, 0)), 1) for a, b in ratios]
    low, high, index = 0, len(units), position
    while high - low > 1:
        middle = low + (high - low) // 2
        share = (sum(units[low:middle]) << 64) // sum(units[low:high])
        phase = int.from_bytes(key_stream(seed, MIXTURE, 8 * middle, 8), "little")
        left = index * share + phase >> 64
        if (index + 1) * share + phase >> 64 > left:
            high, index = middle, left
        else:
            low, index = middle, index - left
    return low, index


def balanced(groups: Sequence[int], share_of: Sequence[float], seed: int, position: int) -> int:
    """The row at a position of a plan with groups."""
    group, index = mixture(share_of, seed, position)
    rows = [row for row, own in enumerate(groups) if own == group]
    own_seed = int.from_bytes(key_stream(seed, GROUPS, 8 * group, 8), "little")
    return rows[permutation(len(rows), own_seed, index)]
