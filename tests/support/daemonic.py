"""What a daemonic process is told when it asks for processes of its own."""

from __future__ import annotations

from typing import Any

from . import drt
from .process_sources import Acting


def try_to_write(pipe: Any, base: str) -> None:
    try:
        drt.write_results(base, Acting("a"), num_processes=1)
    except drt.api.InvalidInputError as error:
        pipe.send([error.kind, str(error)])
    else:
        pipe.send(None)
