"""DatasetRT: a dataset cache and sampling layer for machine learning.

Preprocess once, keep the results in immutable indexed caches, and steer what is drawn with one Polars table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt import api

if TYPE_CHECKING:
    from dataset_rt.api import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [*api.__all__, "__version__"]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in api.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
