"""File systems of their own for tests that fill them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(*, megabytes: int) -> Iterator[Path]:
    """A small file system in memory; the test is skipped where none can be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="drt-small-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("mount") else None
    if done is None or done.returncode != 0:
        folder.rmdir()
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip() if done else 'no mount command'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
