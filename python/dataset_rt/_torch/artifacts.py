"""What a loader puts on the disk for its loading processes, and that it goes away again."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

PREFIX = "dataset-rt-"


class Folder:
    """A folder of the loader's own.

    In a folder of the caller's it stays. Otherwise it is a temporary one, removed when nothing refers to this object any more,
    and at the end of the interpreter at the latest; a process that is killed leaves it.

    Attributes:
        path: The folder, absolute.
        kept: Whether it stays.
    """

    def __init__(self, work_dir: Path | None) -> None:
        self.kept = work_dir is not None
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=None if work_dir is None else work_dir.resolve()))
        self._finalizer: Any = None
        if not self.kept:
            self._finalizer = weakref.finalize(self, _remove, self.path, os.getpid())

    def discard(self) -> None:
        """Remove it now, also in a folder of the caller's: the loader did not come to be."""
        _remove(self.path, os.getpid())

    def remove_with(self, keeper: object, path: Path) -> Any:
        """Have a folder in this one go away with an object, unless this one stays.

        Returns:
            What `weakref.finalize` does, or None.
        """
        return None if self.kept else weakref.finalize(keeper, _remove, path, os.getpid())


def _remove(path: Path, owner: int) -> None:
    # A forked child has a copy of everything, the finalizer included.
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
