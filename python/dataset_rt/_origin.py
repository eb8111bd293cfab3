"""Where a cache was when it was opened: noted for every dataset, so that it costs no more than this."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple


class Origin(NamedTuple):
    """Where a cache was when it was opened, and which one it was.

    Attributes:
        path: The folder, absolute.
        index_file: Device, inode and length of its index. A dataset keeps that mapped, so while it lives no other file has these.
    """

    path: str
    index_file: tuple[int, int, int] | None


def origin_of(path: str | os.PathLike[str]) -> Origin:
    """Note where a cache is. What cannot be noted now is reported when the dataset is exported."""
    absolute = os.fspath(path)
    with suppress(OSError):
        absolute = os.path.join(os.getcwd(), absolute)
    return Origin(absolute, index_of(absolute))


def index_of(folder: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(os.path.join(folder, "index.bin"))
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size
