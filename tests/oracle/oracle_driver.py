"""The public package as a service: JSON requests on stdin, one JSON answer per line on stdout.

Run by the interpreter that `make_env.py` builds, never by the one under test:

    {"do": "version"}
    {"do": "write", "base": FOLDER, "sources": [{"name": ..., "maker": ..., "args": {...}}], "algo": "none",
     "ratio": 1.0, "max_shard_bytes": 67108864, "num_workers": 2, "profile": null}
    {"do": "read", "paths": [...], "validate": true, "shuffle": false, "seed": 0, "count": null}
    {"do": "metadata", "paths": [...]}
    {"do": "dump", "paths": [...], "folder": FOLDER, "shuffle": false, "seed": 0, "edit": {...}, "count": null}
    {"do": "restore", "config": PATH}

Answers are `{"ok": ...}` or `{"error": {"type": ..., "message": ...}}`. Sources are described by the name of a maker
in `support/sources.py`, and edits of a table as `support/tables.py` takes them, so both sides make the same rows.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import dataset_rt as drt
from support import sources, tables, values


def open_dataset(request: dict[str, Any]) -> Any:
    config = drt.ReaderConfig(
        seed=request.get("seed", 0),
        shuffle=request.get("shuffle", False),
        validate_cache=request.get("validate", False),
    )
    return drt.DatasetRuntime(num_workers=2).cached_dataset(request["paths"], reader_config=config)


def write(request: dict[str, Any]) -> list[list[str]]:
    profile = request.get("profile")
    config = drt.WriterConfig(
        show_progress=False,
        profiler={"enabled": True, "path": profile} if profile else {},
        max_shard_bytes=request.get("max_shard_bytes", 64 * 1024 * 1024),
        shard_compression=drt.ShardCompression(algo=request.get("algo", "none"), ratio=request.get("ratio", 1.0)),
    )
    runtime = drt.DatasetRuntime(num_workers=request.get("num_workers", 2))
    written = [sources.build(description) for description in request["sources"]]
    results = runtime.write_cache(written, request["base"], writer_config=config)
    return [[type(result).__name__, result.source_name, str(result[1])] for result in results]


def read(request: dict[str, Any]) -> list[dict[str, Any]]:
    dataset = open_dataset(request)
    if request.get("count"):
        dataset.set_epoch_len(request["count"])
    return [values.plain_sample(sample) for sample in dataset]


def metadata(request: dict[str, Any]) -> dict[str, Any]:
    return values.plain_table(open_dataset(request).get_metadata())


def package_version(_: dict[str, Any]) -> str:
    assert not hasattr(drt, "__version__"), f"the library under test was imported instead: {drt.__file__}"
    return version("dataset-rt")


def dump(request: dict[str, Any]) -> str:
    dataset = open_dataset(request)
    if request.get("edit"):
        dataset.update_metadata(tables.edited(dataset.get_metadata(), request["edit"]))
    if request.get("count"):
        dataset.set_epoch_len(request["count"])
    return str(dataset.dump_config(request["folder"]))


def restore(request: dict[str, Any]) -> dict[str, Any]:
    dataset = drt.CachedDataset.from_config(request["config"])
    return {
        "paths": [str(path) for path in dataset.cache_paths],
        "seed": dataset.reader_config.seed,
        "shuffle": dataset.reader_config.shuffle,
        "table": values.plain_table(dataset.get_metadata()),
        "samples": [values.plain_sample(sample) for sample in dataset],
    }


ACTIONS = {
    "version": package_version,
    "write": write,
    "read": read,
    "metadata": metadata,
    "dump": dump,
    "restore": restore,
}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": ACTIONS[request["do"]](request)}
        except BaseException as error:  # panics are not Exceptions
            answer = {"error": {"type": type(error).__name__, "message": str(error)}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
