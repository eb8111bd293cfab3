"""The types of everything that runtimes and datasets return, and what remains of a union after a look at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import polars as pl
from typing_extensions import assert_never, assert_type


def a_dataset_gives_samples(dataset: drt.CachedDataset) -> None:
    for sample in dataset:
        assert_type(sample, drt.CachedSample)
    samples = iter(dataset)
    assert_type(next(samples), drt.CachedSample)
    assert_type(samples.state_dict(), dict[str, Any])
    samples.load_state_dict(dataset.state_dict(), strict=False)
    with samples as same:
        a_loop_takes_any_iterator(same)
    samples.close()
    assert_type(list(dataset), list[drt.CachedSample])
    assert_type(len(dataset), int)
    assert_type(dataset.get_item(1, 2), drt.CachedSample)
    assert_type(dataset.get_many([(1, 2)]), list[drt.CachedSample])
    assert_type(dataset.get_many(iter([(1, 2)])), list[drt.CachedSample])
    assert_type(dataset.cache_paths, list[Path])
    assert_type(dataset.reader_config, drt.ReaderConfig)


def a_loop_takes_any_iterator(samples: Iterator[drt.CachedSample]) -> None:
    assert_type(next(samples), drt.CachedSample)


def a_sample_has_typed_fields(sample: drt.CachedSample) -> None:
    assert_type(sample.data, bytes)
    assert_type(sample.metadata, dict[str, bool | int | float | str])
    assert_type(sample.cache_id, int)
    assert_type(sample.sample_id, int)
    data, metadata, cache_id, sample_id = sample
    assert_type(data, bytes)
    assert_type(metadata, dict[str, bool | int | float | str])
    assert_type((cache_id, sample_id), tuple[int, int])


def tables_are_polars_frames(dataset: drt.CachedDataset) -> None:
    table = assert_type(dataset.get_metadata(), pl.DataFrame)
    assert_type(dataset.samples_metadata(), pl.DataFrame)
    dataset.update_metadata(table.with_columns(weight=pl.lit(1.0)))
    dataset.set_samples_metadata(table)
    dataset.set_epoch_len(10)


def loaders_go_on_from_states(dataset: drt.CachedDataset) -> None:
    loader = dataset.to_torch_dataloader(order="permutation", worker_partition="stream", seed=1, collate_fn=len)
    assert_type(loader.state_dict(), dict[str, Any])
    loader.load_state_dict(loader.state_dict(), strict=False)
    view = dataset.to_torch_iterable_dataset()
    view.load_state_dict(view.state_dict())


def exports_go_out_and_come_back(dataset: drt.CachedDataset, folder: Path) -> None:
    assert_type(dataset.dump_config(folder), Path)
    assert_type(drt.CachedDataset.from_config(str(folder / "dataset.json")), drt.CachedDataset)


def everything_is_a_context_manager(paths: list[Path]) -> None:
    with drt.DatasetRuntime() as runtime:
        assert_type(runtime, drt.DatasetRuntime)
        assert_type(runtime.num_workers, int)
        with runtime.cached_dataset(paths, reader_config=drt.ReaderConfig(seed=0)) as dataset:
            assert_type(dataset, drt.CachedDataset)
    # Neither swallows exceptions, so what follows a block that returns is not reached.
    assert_type(runtime.__exit__(None, None, None), None)
    assert_type(dataset.close(), None)


def paths_may_be_text_or_any_iterable(runtime: drt.DatasetRuntime, config: drt.ReaderConfig) -> None:
    runtime.cached_dataset(["a", Path("b")], reader_config=config)
    runtime.cached_dataset((path for path in ("a", "b")), reader_config=config)


def a_written_source_is_one_of_two(result: drt.CacheWriteResult) -> str:
    match result:
        case drt.CacheWriteSuccess(source_name, path):
            assert_type(source_name, str)
            assert_type(path, Path)
            return source_name
        case drt.CacheWriteError():
            assert_type(result.message, str)
            assert_type(result.exception, BaseException | None)
            return result.source_name
        case _:
            assert_never(result)


def isinstance_narrows_as_well(results: list[drt.CacheWriteResult]) -> list[Path]:
    for result in results:
        if not isinstance(result, drt.CacheWriteSuccess):
            assert_type(result, drt.CacheWriteError)
    return [result.path for result in results if isinstance(result, drt.CacheWriteSuccess)]


def sources_give_a_dataset_or_a_reason(result: drt.CacheSourcesDatasetResult) -> drt.CachedDataset:
    if isinstance(result, drt.CacheSourcesDatasetError):
        assert_type(result.message, str)
        assert_type(result.results, list[drt.CacheWriteResult])
        raise SystemExit(result.message)
    assert_type(result, drt.CacheSourcesDatasetSuccess)
    dataset, results = result
    assert_type(results, list[drt.CacheWriteResult])
    return assert_type(dataset, drt.CachedDataset)


def a_result_is_generic(dataset: drt.CachedDataset) -> None:
    result = dataset.update_manifests(3)
    assert_type(result, drt.Ok[drt.ManifestUpdateReport] | drt.Err[drt.ManifestUpdateError])
    match result:
        case drt.Ok(report):
            assert_type(report, drt.ManifestUpdateReport)
            assert_type(report.entries, tuple[drt.ManifestUpdateEntry, ...])
            assert_type(report.entries[0].path, Path)
        case drt.Err(error):
            assert_type(error, drt.ManifestUpdateError)
            assert_type(error.path, Path | drt.AbsentManifestTarget)
        case _:
            assert_never(result)


def results_of_ones_own(text: str) -> drt.Result[int, str]:
    return drt.Ok(int(text)) if text.isdigit() else drt.Err(f"{text} is no number")


def errors_and_warnings_have_fields(error: drt.DatasetRTError, warning: drt.StoredColumnsIgnoredWarning) -> None:
    assert_type(error.kind, str)
    assert_type(error.path, str | None)
    assert_type(warning.columns, tuple[str, ...])


# The PyTorch methods get functions of their own here, one for each overload.
