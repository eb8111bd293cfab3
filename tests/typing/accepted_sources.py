"""What passes for a source: anything of its shape, by whatever means it has a name and yields samples."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import dataset_rt as drt
from typing_extensions import assert_type


class WithAttribute:
    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"payload", {"label": 1, "score": 0.5, "ok": True, "split": "train"})


class WithClassAttribute:
    name = "digits_v1"

    def __iter__(self) -> Generator[drt.CacheInput, None, None]:
        yield drt.CacheInput(bytearray(b"payload"), {})


class WithProperty:
    @property
    def name(self) -> str:
        return "digits_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return iter([drt.CacheInput(memoryview(b"payload"), {"label": 1})])


@dataclass(frozen=True)
class Frozen:
    name: str

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"", {})


def every_one_is_a_source(runtime: drt.DatasetRuntime, base: Path) -> None:
    sources: list[drt.CacheSource] = [WithAttribute("a"), WithClassAttribute(), WithProperty(), Frozen("b")]
    assert_type(runtime.write_cache(sources, base), list[drt.CacheWriteSuccess | drt.CacheWriteError])
    runtime.write_cache(WithProperty(), str(base))
    runtime.write_cache([WithAttribute("a"), Frozen("b")], base, writer_config=None)


def a_source_may_wrap_another(source: drt.CacheSource) -> Iterator[drt.CacheInput]:
    assert_type(source.name, str)
    for sample in source:
        assert_type(sample, drt.CacheInput)
        yield sample._replace(metadata={**sample.metadata, "seen": True})
