"""What a loader tells about itself: lines of `key=value` on the logger `dataset_rt.loader`, level INFO."""

from __future__ import annotations

import logging
import sys
from typing import cast

LOGGER = logging.getLogger("dataset_rt.loader")


def emit(event: str, **facts: object) -> None:
    """Log one line. Where logging is not set up at all, as in a script or a spawned process, it goes to standard error."""
    line = " ".join([f"event={event}", *(f"{key}={_shown(value)}" for key, value in facts.items())])
    if LOGGER.hasHandlers():
        LOGGER.info("%s", line)
    else:
        sys.stderr.write(f"[dataset_rt.loader] {line}\n")  # in one piece: processes share it
        sys.stderr.flush()


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, cast("list[object]", value))) or "none"
    return "none" if value is None else str(value)
