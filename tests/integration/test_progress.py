"""What a write tells the person at the terminal. What it tells a log file is tested beside the code that writes it."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest
from support.child import HANG_SECONDS, script_command

pytestmark = pytest.mark.quick

SCRIPT = """
import time
from support import drt, sources
def rows():
    for i, row in enumerate(sources.mini(3000)):
        if i % 1000 == 0:
            time.sleep(0.3)  # a display is redrawn a few times a second
        yield row
config = drt.api.WriterConfig(show_progress=ARGS["show"])
drt.runtime().write_cache([sources.ListSource("some_source", rows())], ARGS["base"], writer_config=config)
"""


def on_a_terminal(base: Path, *, show: bool) -> str:
    """What appears on a terminal during a write."""
    terminal, theirs = pty.openpty()
    seen: list[bytes] = []

    def reading() -> None:
        while True:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            seen.append(data)

    reader = threading.Thread(target=reading, daemon=True)
    reader.start()
    try:
        command = script_command(SCRIPT, {"base": str(base), "show": show})
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, timeout=HANG_SECONDS, check=True)
    finally:
        os.close(theirs)
    reader.join(timeout=HANG_SECONDS)
    os.close(terminal)
    return b"".join(seen).decode()


def test_a_terminal_shows_the_source_that_is_written(base: Path) -> None:
    assert "some_source" in on_a_terminal(base, show=True)
    assert (base / "some_source" / "manifest.json").is_file()


def test_a_terminal_stays_empty_when_progress_is_not_wanted(base: Path) -> None:
    assert on_a_terminal(base, show=False) == ""
    assert (base / "some_source" / "manifest.json").is_file()
