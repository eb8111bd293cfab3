"""A child process that opens caches and says, stage by stage, what happened.

Runs as `python -m support.probe` from the tests folder and answers JSON lines: request
`{"paths": [...], "io": "mmap", "validate": false}`, answer `{"open": ..., "read": ..., "get_metadata": ...}`.
A stage that worked is `{"ok": value}`, one that raised is `{"error": {...}}`. The address space is limited to what
the process has after its imports plus one GiB, so an allocation from an unchecked length fails here and not in the
test process.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from typing import Any

from . import drt, values

HEADROOM_BYTES = 1 << 30


def limit_address_space() -> None:
    import polars  # noqa: F401  (load it before measuring)

    with open("/proc/self/status") as status:
        used_kib = next(int(line.split()[1]) for line in status if line.startswith("VmSize"))
    limit = used_kib * 1024 + HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def describe(error: BaseException) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__],
        "message": str(error),
        "kind": getattr(error, "kind", None),
        "path": None if getattr(error, "path", None) is None else str(error.path),  # type: ignore[attr-defined]
    }


def stage(action: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"ok": action()}
    except BaseException as error:  # a panic is not an Exception, and we want to see it
        return {"error": describe(error)}


def look(request: dict[str, Any]) -> dict[str, Any]:
    runtime = drt.runtime(2)
    answer: dict[str, Any] = {}
    datasets: list[Any] = []

    def open_it() -> int:
        config = drt.reader_config(io=request["io"], validate=request["validate"])
        datasets.append(runtime.cached_dataset(request["paths"], reader_config=config))
        return len(datasets[0])

    answer["open"] = stage(open_it)
    if not datasets:
        return answer
    (dataset,) = datasets
    answer["read"] = stage(lambda: [values.plain_sample(sample) for sample in dataset])
    if request.get("get_metadata", True):
        answer["get_metadata"] = stage(lambda: values.plain_table(dataset.get_metadata()))
    return answer


def main() -> None:
    limit_address_space()
    for line in sys.stdin:
        print(json.dumps(look(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
