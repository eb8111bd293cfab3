"""What `import dataset_rt` offers: names, kinds of classes, documentation, and what pickles refer to."""

from __future__ import annotations

import copy
import pickle
import sys
import typing
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.child import run_script
from support.sources import ten_rows

pytestmark = pytest.mark.quick

NAMES = [
    "CacheInput", "CacheSource", "CachedDataset", "CachedSample", "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult", "CacheSourcesDatasetSuccess", "CacheWriteError", "CacheWriteResult",
    "CacheWriteSuccess", "DatasetRuntime", "ReaderConfig", "ShardCompression", "SizedTorchIterableDataset", "WriterConfig",
    "WriterProfilerConfig",
]  # fmt: skip
RESULTS = {
    "CacheInput": ("data", "metadata"),
    "CachedSample": ("data", "metadata", "cache_id", "sample_id"),
    "CacheWriteSuccess": ("source_name", "path"),
    "CacheWriteError": ("source_name", "message"),
    "CacheSourcesDatasetSuccess": ("dataset", "results"),
    "CacheSourcesDatasetError": ("results", "message"),
}
VALUES: list[Any] = [
    drt.CacheInput(b"a", {"i": 1}),
    drt.CachedSample(b"a", {"i": 1}, 5, 6),
    drt.CacheWriteSuccess("a", Path("x/a")),
    drt.CacheWriteError("a", "why"),
    drt.CacheSourcesDatasetError([drt.CacheWriteError("a", "why")], "nothing"),
    drt.ReaderConfig(seed=3),
    drt.WriterConfig(prefetch_size=3, shard_compression=drt.ShardCompression(algo="lz4", ratio=2.0)),
    drt.ShardCompression(),
    drt.WriterProfilerConfig(enabled=True, path=Path("p.json")),
]


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_importable_from_the_package_and_its_facade(name: str) -> None:
    import dataset_rt.api

    assert getattr(drt, name) is getattr(dataset_rt.api, name)


@pytest.mark.parametrize("name", ["DEFAULT_WRITER_CONFIG", "BytesLike", "Metadata", "MetadataValue", "CompressionAlgo"])
def test_facade_has_the_supporting_names(name: str) -> None:
    import dataset_rt.api

    assert hasattr(dataset_rt.api, name)


@pytest.mark.parametrize(("name", "fields"), RESULTS.items())
def test_results_are_named_tuples_with_these_fields(name: str, fields: tuple[str, ...]) -> None:
    kind = getattr(drt, name)
    assert issubclass(kind, tuple)
    assert kind._fields == fields


@pytest.mark.parametrize("name", ["CacheWrite", "CacheSourcesDataset"])
def test_results_are_a_success_or_an_error(name: str) -> None:
    kinds = typing.get_args(getattr(drt, f"{name}Result"))
    assert kinds == (getattr(drt, f"{name}Success"), getattr(drt, f"{name}Error"))


def test_a_source_is_known_by_its_shape_and_not_by_its_class() -> None:
    assert typing.is_protocol(drt.CacheSource) if hasattr(typing, "is_protocol") else drt.CacheSource._is_protocol
    with pytest.raises(TypeError):
        isinstance([], drt.CacheSource)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_survive_pickling_and_name_the_facade(value: Any) -> None:
    text = pickle.dumps(value)
    assert b"dataset_rt.api" in text
    again = pickle.loads(text)
    assert again == value and type(again) is type(value)
    assert copy.deepcopy(value) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_can_be_unpickled_by_a_process_that_has_imported_nothing(value: Any) -> None:
    script = "import pickle; report(repr(pickle.loads(bytes.fromhex(ARGS['pickle']))))"
    assert run_script(script, {"pickle": pickle.dumps(value).hex()}) == repr(value)


def test_samples_of_a_dataset_are_real_named_tuples(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(3))
    for sample in subject.open_dataset(path):
        assert type(sample) is drt.CachedSample
        assert type(sample.data) is bytes and type(sample.metadata) is dict
        assert type(sample.cache_id) is int and type(sample.sample_id) is int
        data, metadata, cache_id, sample_id = sample
        assert sample == (data, metadata, cache_id, sample_id) == sample._replace(data=data)
        assert pickle.loads(pickle.dumps(sample)) == sample
        with pytest.raises(TypeError):
            hash(sample)  # it holds a dict


def test_metadata_of_a_sample_is_its_own_dict(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(2))
    dataset = subject.open_dataset(path)
    first, _ = dataset
    first.metadata["i"] = "edited"
    first.metadata["new"] = 1
    assert [sample.metadata for sample in dataset] == [{"i": 0}, {"i": 1}]


def test_live_objects_refuse_to_be_pickled(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(2))
    runtime = subject.runtime()
    dataset = runtime.cached_dataset([path], reader_config=subject.reader_config())
    for live in (runtime, dataset, iter(dataset)):
        with pytest.raises(TypeError):
            pickle.dumps(live)


def test_a_dataset_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError):
        drt.CachedDataset()


@pytest.mark.ours
def test_version_is_a_release_number() -> None:
    major, minor, patch = drt.__version__.split(".")[:3]
    assert major.isdigit() and minor.isdigit() and patch[0].isdigit()


@pytest.mark.parametrize("name", NAMES)
def test_public_classes_are_documented(name: str) -> None:
    value = getattr(drt, name)
    if isinstance(value, type):
        assert value.__doc__ and value.__doc__.strip()


@pytest.mark.ours
def test_every_public_method_of_a_dataset_is_documented() -> None:
    for kind in (drt.CachedDataset, drt.DatasetRuntime):
        for name in dir(kind):
            if not name.startswith("_"):
                assert getattr(kind, name).__doc__, f"{kind.__name__}.{name}"


@pytest.mark.ours
def test_importing_the_package_does_not_load_polars_or_pydantic() -> None:
    loaded = run_script("import dataset_rt; report(sorted({name.partition('.')[0] for name in sys.modules}))")
    assert "dataset_rt" in loaded
    assert not {"polars", "pydantic", "numpy", "pyarrow", "torch"} & set(loaded)


@pytest.mark.ours
def test_reading_samples_never_loads_polars(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(3))
    script = """
import dataset_rt as drt
dataset = drt.DatasetRuntime(num_workers=1).cached_dataset([ARGS["path"]], reader_config=drt.ReaderConfig(seed=0))
assert len(list(dataset)) == 3
report("polars" in sys.modules)
"""
    assert run_script(script, {"path": str(path)}) is False


@pytest.mark.ours
def test_opening_loads_nothing_that_only_exports_and_processes_need(base: Path) -> None:
    path = subject.write(base, "a", ten_rows(3))
    script = """
import dataset_rt as drt
dataset = drt.DatasetRuntime(num_workers=1).cached_dataset([ARGS["path"]], reader_config=drt.ReaderConfig(seed=0))
assert len(list(dataset)) == 3
report(sorted({"dataset_rt._export", "dataset_rt._processes", "dataset_rt._migration", "multiprocessing"} & set(sys.modules)))
"""
    assert run_script(script, {"path": str(path)}) == []


@pytest.mark.ours
def test_numpy_and_pyarrow_are_not_needed(base: Path) -> None:
    script = """
sys.modules["numpy"] = sys.modules["pyarrow"] = None  # importing either now fails
from pathlib import Path
from support import drt, sources
path = drt.write(Path(ARGS["base"]), "a", sources.all_kinds(20), algo="lz4")
dataset = drt.open_dataset(path, validate=True)
table = dataset.get_metadata()
dataset.update_metadata(table.head(5))
report([len(list(dataset)), table.shape])
"""
    assert run_script(script, {"base": str(base)}) == [5, [20, 8]]


@pytest.mark.skipif(sys.flags.optimize > 0, reason="docstrings are stripped")
@pytest.mark.ours
def test_the_package_is_typed() -> None:
    assert (Path(drt.__file__).parent / "py.typed").is_file()
