"""Seeds of consumers, derived so that no two draw alike. Pure arithmetic, the same as in the public package."""

from __future__ import annotations

_MASK = 2**64 - 1
_DOMAIN = 0x4453545253454544


def mix(value: int) -> int:
    """The finaliser of SplitMix64: 64 bits to 64 bits, each bit of the input reaching each of the output."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def consumer_seed(seed: int, rank: int, worker: int) -> int:
    """The seed that one loading process of one rank draws with.

    Args:
        seed: The loader's seed, 0 to 2**64 - 1, the same on all ranks.
        rank: The training process, from 0.
        worker: The loading process of that rank, from 0; 0 when it loads itself.
    """
    return mix(((rank << 32) | worker) ^ mix(seed ^ _DOMAIN))
