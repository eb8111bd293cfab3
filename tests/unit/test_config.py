"""Configuration values: defaults, what is accepted, and that nothing can be changed afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from pydantic import ValidationError
from support import drt as subject
from support.sources import ListSource, ten_rows

pytestmark = pytest.mark.quick

DEFAULTS: list[tuple[Any, str, Any]] = [
    (lambda: drt.ReaderConfig(seed=1), "prefetch_size", 64),
    (lambda: drt.ReaderConfig(seed=1), "shuffle", True),
    (lambda: drt.ReaderConfig(seed=1), "validate_cache", False),
    (drt.WriterConfig, "num_processes", 0),
    (drt.WriterConfig, "process_timeout_seconds", 3600.0),
    (drt.WriterConfig, "prefetch_size", 64),
    (drt.WriterConfig, "max_shard_bytes", 64 * 1024 * 1024),
    (drt.WriterConfig, "show_progress", True),
    (drt.WriterConfig, "validate_cache", False),
    (drt.WriterConfig, "shard_compression", drt.ShardCompression(algo="none", ratio=1.0)),
    (drt.WriterConfig, "profiler", drt.WriterProfilerConfig(enabled=False, path=Path("dataset_rt_profile.json"))),
    (drt.ShardCompression, "algo", "none"),
    (drt.ShardCompression, "ratio", 1.0),
    (drt.WriterProfilerConfig, "enabled", False),
]


@pytest.mark.parametrize(("make", "field", "value"), DEFAULTS)
def test_defaults(make: Any, field: str, value: Any) -> None:
    assert getattr(make(), field) == value


@pytest.mark.ours
def test_nothing_is_profiled_unless_asked_for() -> None:
    expected = drt.ReaderProfilerConfig(enabled=False, path=Path("dataset_rt_read_profile.json"))
    assert drt.ReaderConfig(seed=1).profiler == drt.ReaderProfilerConfig() == expected
    assert drt.ReaderProfilerConfig(unknown=1) == expected
    with pytest.raises(ValidationError):
        drt.ReaderConfig(seed=1, profiler={"enabled": "perhaps"})
    with pytest.raises(ValidationError):
        expected.enabled = True


def test_a_stale_cache_is_an_error_unless_asked_otherwise() -> None:
    assert drt.WriterConfig().on_stale == "error"
    assert drt.WriterConfig(on_stale="rebuild").on_stale == "rebuild"
    with pytest.raises(ValidationError):
        drt.WriterConfig(on_stale="ignore")  # type: ignore[arg-type]


@pytest.mark.ours
def test_payloads_are_mapped_unless_asked_otherwise() -> None:
    assert drt.ReaderConfig(seed=1).io == "mmap"
    assert drt.ReaderConfig(seed=1, io="pread").io == "pread"
    with pytest.raises(ValidationError):
        drt.ReaderConfig(seed=1, io="socket")


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (drt.ReaderConfig, {}),
        (drt.ReaderConfig, {"seed": 1.5}),
        (drt.ReaderConfig, {"seed": "one"}),
        (drt.ReaderConfig, {"seed": None}),
        (drt.ReaderConfig, {"seed": 1, "prefetch_size": 0}),
        (drt.ReaderConfig, {"seed": 1, "prefetch_size": -1}),
        (drt.ReaderConfig, {"seed": 1, "unknown": 1}),
        (drt.WriterConfig, {"num_processes": -1}),
        (drt.WriterConfig, {"process_timeout_seconds": 0}),
        (drt.WriterConfig, {"process_timeout_seconds": float("inf")}),
        (drt.WriterConfig, {"process_timeout_seconds": float("nan")}),
        (drt.WriterConfig, {"prefetch_size": 0}),
        (drt.WriterConfig, {"max_shard_bytes": 0}),
        (drt.WriterConfig, {"unknown": 1}),
        (drt.WriterConfig, {"shard_compression": {"algo": "gzip"}}),
        (drt.ShardCompression, {"algo": "LZ4"}),
        (drt.ShardCompression, {"algo": "lz4", "ratio": 0}),
        (drt.ShardCompression, {"algo": "lz4", "ratio": -1}),
        (drt.ShardCompression, {"algo": "lz4", "ratio": float("nan")}),
    ],
)
def test_nonsense_is_refused_when_the_configuration_is_made(make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make(**options)


@pytest.mark.parametrize(("given", "kept"), [("1", 1), (1.0, 1), (True, 1), (2**64 - 1, 2**64 - 1), (0, 0)])
def test_seed_is_coerced_as_pydantic_does(given: Any, kept: int) -> None:
    assert drt.ReaderConfig(seed=given).seed == kept


@pytest.mark.parametrize(("given", "kept"), [("no", False), (1, True), ("on", True)])
def test_switches_are_coerced_as_pydantic_does(given: Any, kept: bool) -> None:
    assert drt.WriterConfig(show_progress=given, validate_cache=given).show_progress is kept
    assert drt.ReaderConfig(seed=1, shuffle=given).shuffle is kept


def test_compression_may_be_given_as_a_dict() -> None:
    config = drt.WriterConfig(shard_compression={"algo": "lz4", "ratio": 3.0})
    assert config.shard_compression == drt.ShardCompression(algo="lz4", ratio=3.0)


@pytest.mark.parametrize("make", [drt.ShardCompression, drt.WriterProfilerConfig])
def test_small_models_ignore_unknown_fields(make: Any) -> None:
    assert make(unknown=1) == make()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (drt.ReaderConfig(seed=1), "seed"),
        (drt.WriterConfig(), "prefetch_size"),
        (drt.ShardCompression(), "algo"),
        (drt.WriterProfilerConfig(), "enabled"),
    ],
)
def test_configurations_are_frozen(config: Any, field: str) -> None:
    with pytest.raises(ValidationError):
        setattr(config, field, getattr(config, field))


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_outside_64_bits_opens_nothing(base: Path, seed: int) -> None:
    path = subject.write(base, "a", ten_rows(2))
    with pytest.raises((OverflowError, ValueError)):
        subject.runtime().cached_dataset([path], reader_config=drt.ReaderConfig(seed=seed))


@pytest.mark.ours
@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 2**64}, {"seed": 1, "prefetch_size": 2**64}])
def test_a_number_out_of_range_is_refused_by_its_name(base: Path, options: dict[str, int]) -> None:
    path = subject.write(base, "a", ten_rows(2))
    with pytest.raises(OverflowError, match=list(options)[-1]) as caught:
        subject.runtime().cached_dataset([path], reader_config=drt.ReaderConfig(**options))
    assert str(list(options.values())[-1]) in str(caught.value)


@pytest.mark.ours
@pytest.mark.parametrize("config", [None, {"seed": 1}, drt.WriterConfig()])
def test_only_a_reader_config_is_one(base: Path, config: Any) -> None:
    path = subject.write(base, "a", ten_rows(2))
    with pytest.raises(TypeError, match="reader_config must be a ReaderConfig"):
        subject.runtime().cached_dataset([path], reader_config=config)


@pytest.mark.ours
@pytest.mark.parametrize(("config", "error"), [({"seed": 1}, TypeError), (drt.ReaderConfig(seed=-1), OverflowError)])
def test_caches_are_not_written_for_a_reader_config_that_cannot_open_them(base: Path, config: Any, error: Any) -> None:
    with pytest.raises(error):
        subject.runtime().from_cache_sources(
            ListSource("a", ten_rows()), base, reader_config=config, writer_config=subject.writer_config()
        )
    assert list(base.iterdir()) == []


@pytest.mark.ours
@pytest.mark.parametrize("config", [{}, drt.ReaderConfig(seed=1)])
def test_only_a_writer_config_is_one(base: Path, config: Any) -> None:
    with pytest.raises(TypeError, match="writer_config must be a WriterConfig"):
        subject.runtime().write_cache(ListSource("a", ten_rows()), base, writer_config=config)
    assert not (base / "a").exists()


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_seed_of_64_bits_opens(base: Path, seed: int) -> None:
    path = subject.write(base, "a", ten_rows(2))
    for shuffle in (False, True):
        assert len(list(subject.open_dataset(path, seed=seed, shuffle=shuffle))) == 2


@pytest.mark.parametrize("prefetch", [1, 2**40])
def test_any_positive_prefetch_works(base: Path, prefetch: int) -> None:
    path = subject.write(base, "a", ten_rows())
    assert subject.ids(subject.open_dataset(path, prefetch=prefetch)) == list(range(10))


@pytest.mark.parametrize(
    "compression",
    [{"algo": "none", "ratio": 2.0}, {"algo": "none", "ratio": float("inf")}, {"algo": "lz4", "ratio": float("inf")}],
)
def test_compression_that_makes_no_sense_is_refused_before_anything_is_written(base: Path, compression: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        config = drt.WriterConfig(shard_compression=compression, show_progress=False)
        subject.runtime().write_cache(ListSource("a", ten_rows()), base, writer_config=config)
    assert not (base / "a").exists() and subject.leftovers(base) == []


def test_a_shard_size_beyond_64_bits_writes_nothing(base: Path) -> None:
    with pytest.raises((ValueError, RuntimeError)) as caught:
        subject.write_results(base, ListSource("a", ten_rows()), max_shard_bytes=2**64)
    if subject.IS_OURS:
        assert isinstance(caught.value, drt.InvalidInputError) and "max_shard_bytes" in str(caught.value)
    assert not (base / "a").exists() and subject.leftovers(base) == []


@pytest.mark.ours
@pytest.mark.parametrize(
    ("compression", "message"),
    [({"algo": "none", "ratio": 2.0}, "1.0 for 'none'; got 2.0"), ({"algo": "lz4", "ratio": float("inf")}, "finite; got inf")],
)
def test_an_impossible_ratio_is_said_to_be_one(base: Path, compression: dict[str, Any], message: str) -> None:
    config = drt.WriterConfig(shard_compression=compression, show_progress=False)
    with pytest.raises(drt.InvalidInputError, match=message):
        subject.runtime().write_cache(ListSource("a", ten_rows()), base, writer_config=config)


def test_lz4_with_ratio_one_is_fine(base: Path) -> None:
    assert subject.write(base, "a", ten_rows(), algo="lz4", ratio=1.0).is_dir()


def test_runtime_takes_its_worker_count_by_keyword_only() -> None:
    with pytest.raises(TypeError):
        drt.DatasetRuntime(2)
    if not subject.IS_OURS:
        with pytest.raises(TypeError):
            drt.DatasetRuntime()


@pytest.mark.parametrize(("given", "kept"), [(1, 1), (3, 3), (True, 1), (200, 200)])
def test_runtime_gives_its_worker_count_back(given: Any, kept: int) -> None:
    assert drt.DatasetRuntime(num_workers=given).num_workers == kept


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (0, ValueError),
        (-1, (OverflowError, ValueError)),
        (2**64, (OverflowError, ValueError)),
        (1.0, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
)
def test_runtime_refuses_an_impossible_worker_count(given: Any, error: Any) -> None:
    with pytest.raises(error):
        drt.DatasetRuntime(num_workers=given)


def test_worker_count_cannot_be_changed() -> None:
    runtime = drt.DatasetRuntime(num_workers=1)
    with pytest.raises(AttributeError):
        runtime.num_workers = 2
