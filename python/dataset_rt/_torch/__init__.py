"""The PyTorch loader. Torch is imported by `_torch.data`, `_torch.loader` and those of mixtures, `_torch.mixed_loader` and
`_torch.mixing`, which are imported when a loader is asked for.

What needs no torch is in modules of its own: `partition` and `seeds` (who reads which rows), `budgets` (how many processes and
threads), `options` (what was asked for), `stream` and `mixed_stream` (from rows to samples), `artifacts` (what is on the disk for
the loading processes) and `events` (what is logged).
"""

from __future__ import annotations


def require_torch() -> None:
    """Tell what to install.

    Raises:
        ModuleNotFoundError: There is no PyTorch (also an ImportError).
    """
    try:
        import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError("PyTorch is not installed; `pip install torch` installs it", name="torch") from error
