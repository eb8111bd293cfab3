"""Exports: the settings and the active table of a dataset, in a folder from which any process makes the dataset again.

Source: docs/spec/export.md, whose clauses the comments name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from dataset_rt._origin import Origin, index_of
from dataset_rt.exceptions import (
    CacheExistsError,
    CacheNotFoundError,
    CorruptCacheError,
    DatasetRTError,
    InvalidInputError,
    StorageError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt._config import ReaderConfig
    from dataset_rt._dataset import CachedDataset

CONFIG_FILE = "dataset.json"
TABLE_FILE = "metadata.arrow"
SEAL_FILE = "drt_export.json"
CONFIG_VERSION = 2
SEAL_VERSION = 1

_WORK_PREFIX = ".drt-export-"
_FOREIGN_WORK_FILES = (f"{CONFIG_FILE}.partial", f"{TABLE_FILE}.partial")
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_MAX_U64 = 2**64 - 1
_MAX_EPOCH_LEN = 2**63 - 1


class Contents(NamedTuple):
    """What an export says of a dataset, besides its caches."""

    table: pl.DataFrame
    epoch_len: int
    num_workers: int
    reader_config: ReaderConfig


# ------------------------------------------------------------------------------------------------------------------ dump


def dump(path: str | os.PathLike[str], origins: Sequence[Origin], contents: Callable[[], Contents]) -> Path:
    """Write an export into a folder; see `CachedDataset.dump_config`."""
    given = _given_path(path)
    if not os.path.lexists(given):
        raise CacheNotFoundError(f"{given}: no such folder; create it before exporting", kind="folder-not-found", path=given)
    if not os.path.isdir(given):
        raise InvalidInputError(
            f"{given} is not a folder; an export needs a folder of its own", kind="invalid-argument", path=given
        )
    folder = Path(os.path.realpath(given))
    with _writing(folder), _sole_writer(folder) as sweep:
        _refuse_if_taken(folder, CONFIG_FILE, "holds an export already; choose another folder")
        for name in _FOREIGN_WORK_FILES:
            _refuse_if_taken(folder, name, f"has {name}, of another program's export; choose another folder, or remove it")
        if sweep:
            _sweep(folder)
        for name in (TABLE_FILE, SEAL_FILE):
            _refuse_if_taken(folder, name, f"has a file {name} already; choose another folder, or move it away")
        caches = [_current_identity(position, origin) for position, origin in enumerate(origins)]
        _write_and_publish(folder, [os.path.realpath(origin.path) for origin in origins], caches, contents())
    return folder / CONFIG_FILE


def _write_and_publish(folder: Path, paths: Sequence[str], caches: Sequence[Identity], contents: Contents) -> None:
    """Write the three files aside, then give them their names, `dataset.json` last (clauses 5.1 to 5.4)."""
    import tempfile

    work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=folder))
    try:
        digest = _write_table(work / TABLE_FILE, contents.table)
        config = contents.reader_config
        settings = {
            "version": CONFIG_VERSION,
            "reader_config": {
                "seed": config.seed,
                "prefetch_size": config.prefetch_size,
                "shuffle": config.shuffle,
                "validate_cache": config.validate_cache,
            },
            "num_workers": contents.num_workers,
            "epoch_len": contents.epoch_len,
            "row_count": contents.table.height,
            "metadata_file": TABLE_FILE,
        }
        seal = {
            "drt_export_version": SEAL_VERSION,
            "drt_writer": {"name": "dataset-rt", "version": _own_version()},
            "settings": settings,
            "io": config.io,
            "order": config.order,
            "metadata_sha256": digest,
            "caches": [
                {"relative_path": os.path.relpath(path, folder), **cache._asdict()}
                for path, cache in zip(paths, caches, strict=True)
            ],
        }
        version, *others = settings.items()
        _write_json(work / SEAL_FILE, seal)
        _write_json(work / CONFIG_FILE, dict([version, ("cache_paths", list(paths)), *others]))
        for name in (TABLE_FILE, SEAL_FILE):
            _publish(work / name, folder / name)
        _sync_folder(folder)
        _publish(work / CONFIG_FILE, folder / CONFIG_FILE)
        _sync_folder(folder)
    finally:
        _settle(folder, work)


def _write_table(path: Path, table: pl.DataFrame) -> str:
    """Write a table as an Arrow file, and read it back: nobody may learn at restoring time that a column cannot be kept.

    Returns:
        The file's SHA-256.
    """
    import polars as pl

    if any(_has_categories(dtype) for dtype in table.dtypes):
        table = table.rechunk()  # an Arrow file has one dictionary per column, and chunks may each have their own (3.2)
    try:
        table.write_ipc(path, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
        data = _sync_and_read(path)
        again = _parse_table(data)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        _refuse_column(table, path.parent.parent, error)
    deciding = ["cache_id", "sample_id", "weight"]
    if again.schema != table.schema or not again.select(deciding).equals(table.select(deciding)):
        _refuse_column(table, path.parent.parent, None)
    return hashlib.sha256(data).hexdigest()


def _refuse_column(table: pl.DataFrame, folder: Path, error: BaseException | None) -> NoReturn:
    """Name the column that an Arrow file cannot hold; if there is none, the folder."""
    import io

    import polars as pl

    for name, dtype in table.schema.items():
        column, buffer = table.select(pl.col(name)), io.BytesIO()
        try:
            column.write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
            kept = _parse_table(buffer.getvalue()).schema == column.schema
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as refusal:
            kept, error = False, refusal
        if not kept:
            raise InvalidInputError(
                f"the active table cannot be exported: the column {name!r} has type {dtype}, which an Arrow file does not keep; "
                "drop or convert it with update_metadata before exporting",
                kind="invalid-table",
            ) from error
    reason = "what was written reads back differently; check the disk" if error is None else str(error)
    raise StorageError(f"{folder}: the export could not be written: {reason}", path=folder) from error


def _has_categories(dtype: Any) -> bool:
    """Whether a type holds dictionaries, at any depth."""
    import polars as pl

    if isinstance(dtype, pl.Struct):
        return any(_has_categories(field.dtype) for field in dtype.fields)
    if isinstance(dtype, (pl.List, pl.Array)):
        return _has_categories(dtype.inner)
    return isinstance(dtype, pl.Categorical)


def _write_json(path: Path, value: object) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a path of bytes that are no UTF-8, which Python keeps as lone surrogates
        data = json.dumps(value, indent=2).encode()
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_and_read(path: Path) -> bytes:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return file.read()


def _publish(source: Path, target: Path) -> None:
    """Give a finished file its name; fails when the name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        _refuse_taken(target, f"{target} appeared while exporting; choose another folder")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(folder: Path, work: Path) -> None:
    """Remove a work folder, and first what was published from it, unless its `dataset.json` was published too.

    Published names go before the copies that prove whose they are, so that being killed in here is harmless as well (5.4).
    """
    names = (TABLE_FILE, SEAL_FILE, CONFIG_FILE)
    if not _same_file(work / CONFIG_FILE, folder / CONFIG_FILE):
        for name in names:
            if _same_file(work / name, folder / name):
                with suppress(OSError):
                    os.unlink(folder / name)
    for name in names:
        with suppress(OSError):
            os.unlink(work / name)
    with suppress(OSError):
        os.rmdir(work)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _sweep(folder: Path) -> None:
    """Settle what killed exports left. Only while no other can be at work here."""
    with os.scandir(folder) as entries:
        left = [entry.name for entry in entries if entry.name.startswith(_WORK_PREFIX) and entry.is_dir(follow_symlinks=False)]
    for name in left:
        _settle(folder, folder / name)


@contextmanager
def _sole_writer(folder: Path) -> Generator[bool, None, None]:
    """Lock a folder against other exports. The lock leaves no file behind and ends with the process.

    Yields:
        Whether there is a lock. Without one the files are as safe, and leftovers are let be.
    """
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    locked = False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            raise CacheExistsError(
                f"{folder}: another export is being written to this folder; choose another folder",
                kind="export-exists",
                path=folder,
            ) from None
        except OSError:
            pass  # a file system without locks
        yield locked
    finally:
        if locked:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing would not do if a forked child has a copy
        os.close(descriptor)


@contextmanager
def _writing(folder: Path) -> Generator[None, None, None]:
    """Say of what the file system refuses where it was."""
    try:
        yield
    except DatasetRTError:
        raise
    except OSError as error:
        no_links = error.filename2 is not None and error.errno in _NO_HARD_LINKS
        hint = " (publishing needs hard links); export to another file system" if no_links else ""
        raise StorageError(
            f"{folder}: the export could not be written: {error.strerror or error}{hint}", path=folder, errno=error.errno
        ) from error


def _refuse_if_taken(folder: Path, name: str, problem: str) -> None:
    if os.path.lexists(folder / name):
        _refuse_taken(folder / name, f"{folder} {problem}")


def _refuse_taken(path: Path, message: str) -> NoReturn:
    raise CacheExistsError(f"{message}; nothing was changed", kind="export-exists", path=path)


# ----------------------------------------------------------------------------------------------------------------- caches


class Identity(NamedTuple):
    """Which cache it is, by its manifest."""

    cache_id: int
    sample_count: int
    metadata_sha256: str
    index_sha256: str
    shards_sha256: str


def _identity(position: int, folder: str) -> Identity:
    """Read a cache's identity from its manifest.

    Args:
        position: The cache's place among the paths, which is its id in format 2.
        folder: The cache.

    Raises:
        OSError: The manifest cannot be read.
        ValueError: It is no manifest.
    """
    manifest = json.loads(Path(folder, "manifest.json").read_bytes())
    try:
        return Identity(
            cache_id=int(manifest.get("cache_id", position)),
            sample_count=int(manifest["sample_count"]),
            metadata_sha256=manifest["metadata_sha256"].lower(),
            index_sha256=manifest["index_sha256"].lower(),
            shards_sha256=hashlib.sha256("".join(shard["sha256"].lower() for shard in manifest["shards"]).encode()).hexdigest(),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it has not the keys of a manifest ({error})") from None


def _current_identity(position: int, origin: Origin) -> Identity:
    """The identity of an open cache, having seen that it is still at its path."""
    if not os.path.isdir(origin.path):
        raise CacheNotFoundError(
            f"{origin.path}: the cache is no longer where it was opened, so an export could not refer to it; "
            "move it back, or open it where it is now and export that dataset",
            kind="cache-not-found",
            path=origin.path,
        )
    if origin.index_file is None or index_of(origin.path) != origin.index_file:
        raise CorruptCacheError(
            f"{origin.path}: another cache has taken the place of the one that was opened; open it again, then export",
            kind="replaced-file",
            path=origin.path,
        )
    try:
        return _identity(position, origin.path)
    except OSError as error:
        _unreadable(Path(origin.path, "manifest.json"), error)
    except ValueError as error:
        raise CorruptCacheError(
            f"{origin.path}: manifest.json was damaged since the cache was opened: {error}; restore or rebuild the cache",
            kind="malformed-manifest",
            path=os.path.join(origin.path, "manifest.json"),
        ) from error


def _differences(expected: Identity, found: Identity) -> str:
    """What a person would say about two identities; empty when they are the same."""
    said: list[str] = []
    if found.cache_id != expected.cache_id:
        said.append(f"cache_id {found.cache_id} where {expected.cache_id} was exported")
    if found.sample_count != expected.sample_count:
        said.append(f"{found.sample_count} samples where {expected.sample_count} were exported")
    for name, text in (
        ("metadata_sha256", "other metadata"),
        ("index_sha256", "another index"),
        ("shards_sha256", "other shards"),
    ):
        if getattr(found, name) != getattr(expected, name):
            said.append(text)
    return ", ".join(said)


# ------------------------------------------------------------------------------------------------------------------- load


class _Config(NamedTuple):
    """`dataset.json`, checked."""

    cache_paths: list[str]
    seed: int
    prefetch_size: int
    shuffle: bool
    validate_cache: bool
    num_workers: int
    epoch_len: int
    row_count: int


class _Seal(NamedTuple):
    """`drt_export.json`, checked."""

    io: str
    order: str
    metadata_sha256: str
    relative_paths: list[str]
    caches: list[Identity]


def load(path: str | os.PathLike[str]) -> CachedDataset:
    """Make the dataset of an export; see `CachedDataset.from_config`."""
    given = _given_path(path)
    if os.path.isdir(given):
        raise InvalidInputError(
            f"{given} is a folder; give the export's file: {given / CONFIG_FILE}", kind="invalid-argument", path=given
        )
    if not os.path.lexists(given):
        raise CacheNotFoundError(
            f"{given}: no such file; give the path that dump_config returned", kind="export-not-found", path=given
        )
    given = given.absolute()
    raw = _read_json(given)
    config = _check_config(given, raw)
    seal = _read_seal(given, raw, config)
    table = _read_table(given.parent / TABLE_FILE, config, seal)
    folders = _find_caches(given, config, seal)

    from dataset_rt._config import ReaderConfig
    from dataset_rt._runtime import DatasetRuntime

    io: Any = "mmap" if seal is None else seal.io
    order: Any = ("weighted" if config.shuffle else "sequential") if seal is None else seal.order
    reader_config = ReaderConfig(
        seed=config.seed,
        prefetch_size=config.prefetch_size,
        order=order,
        validate_cache=config.validate_cache,
        io=io,
    )
    dataset = DatasetRuntime(num_workers=config.num_workers).cached_dataset(folders, reader_config=reader_config)
    try:
        dataset.update_metadata(table)
    except InvalidInputError as error:
        file = given.parent / TABLE_FILE
        raise InvalidInputError(
            f"{file} does not fit the caches: {error}; restore the caches that were exported, or export again",
            kind=error.kind,
            path=file,
        ) from error
    dataset.set_epoch_len(config.epoch_len)
    return dataset


def _check_config(path: Path, raw: dict[str, object]) -> _Config:
    """Check `dataset.json` (clauses 2.1 to 2.4)."""
    fields = _Fields(path, raw)
    fields.version("version", CONFIG_VERSION)
    reader = _Fields(path, fields.of("reader_config", dict, "an object"), "reader_config.")
    config = _Config(
        cache_paths=fields.texts("cache_paths"),
        seed=reader.integer("seed", 0, _MAX_U64),
        prefetch_size=reader.integer("prefetch_size", 1, _MAX_U64),
        shuffle=reader.of("shuffle", bool, "true or false"),
        validate_cache=reader.of("validate_cache", bool, "true or false"),
        num_workers=fields.integer("num_workers", 1, _MAX_U64),
        epoch_len=fields.integer("epoch_len", 1, _MAX_EPOCH_LEN),
        row_count=fields.integer("row_count", 1, _MAX_U64),
    )
    if fields.of("metadata_file", str, "a string") != TABLE_FILE:
        _malformed(path, f"metadata_file must be {TABLE_FILE!r}")
    for part in (fields, reader):
        part.nothing_else()
    return config


def _read_seal(config_path: Path, raw: Mapping[str, object], config: _Config) -> _Seal | None:
    """Read `drt_export.json` and hold `dataset.json` to it (clauses 4.1 to 4.4); exports of other programs have none."""
    path = config_path.parent / SEAL_FILE
    if not os.path.lexists(path):
        return None
    fields = _Fields(path, _read_json(path))
    fields.version("drt_export_version", SEAL_VERSION)
    settings = fields.of("settings", dict, "an object")
    present = {key: value for key, value in raw.items() if key != "cache_paths"}
    if present != settings:
        key = next(key for key in {**settings, **present} if settings.get(key) != present.get(key))
        _malformed(
            config_path,
            f"{key} is {json.dumps(present.get(key))} there and {json.dumps(settings.get(key))} in {SEAL_FILE}, "
            "so one of the files was changed or damaged",
        )
    io = fields.of("io", str, "a string")
    if io not in ("mmap", "pread"):
        _malformed(path, f"io must be 'mmap' or 'pread', not {io!r}")
    order = "weighted" if config.shuffle else "sequential"
    if "order" in fields:
        order = fields.of("order", str, "a string")
        if order not in (("weighted", "permutation") if config.shuffle else ("sequential",)):
            _malformed(path, f"order is {order!r}, and {CONFIG_FILE} has shuffle {json.dumps(config.shuffle)}")
    caches: list[Identity] = []
    relative_paths: list[str] = []
    for position, each in enumerate(fields.of("caches", list, "an array")):
        cache = _Fields(path, each, f"caches[{position}].")
        relative_paths.append(cache.of("relative_path", str, "a string"))
        caches.append(
            Identity(
                cache_id=cache.integer("cache_id", 0, _MAX_U64),
                sample_count=cache.integer("sample_count", 0, _MAX_U64),
                metadata_sha256=cache.of("metadata_sha256", str, "a string"),
                index_sha256=cache.of("index_sha256", str, "a string"),
                shards_sha256=cache.of("shards_sha256", str, "a string"),
            )
        )
    if len(caches) != len(config.cache_paths):
        _malformed(config_path, f"it lists {len(config.cache_paths)} caches, and {SEAL_FILE} {len(caches)}")
    return _Seal(io, order, fields.of("metadata_sha256", str, "a string"), relative_paths, caches)


def _read_table(path: Path, config: _Config, seal: _Seal | None) -> pl.DataFrame:
    """Read `metadata.arrow`: the bytes that were checked are the bytes that are parsed."""
    import polars as pl

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptCacheError(
            f"{path} is missing; {CONFIG_FILE} is of no use without it: restore it, or export again",
            kind="missing-file",
            path=path,
        ) from None
    except OSError as error:
        _unreadable(path, error)
    if seal is not None and hashlib.sha256(data).hexdigest() != seal.metadata_sha256:
        raise CorruptCacheError(
            f"{path}: its {len(data)} bytes have another SHA-256 than {SEAL_FILE} says, so it was changed or damaged; "
            "restore it, or export again",
            kind="checksum-mismatch",
            path=path,
        )
    try:
        table = _parse_table(data)
    except (Exception, pl.exceptions.PanicException) as error:
        _malformed(path, f"it is not an Arrow file that can be read: {error}", error)
    if table.height != config.row_count:
        _malformed(path, f"it has {table.height} rows, and {CONFIG_FILE} says {config.row_count}")
    return table


def _parse_table(data: bytes) -> pl.DataFrame:
    import io

    import polars as pl

    return pl.read_ipc(io.BytesIO(data))


def _find_caches(config_path: Path, config: _Config, seal: _Seal | None) -> list[Path]:
    """Find each cache: at its absolute path, or where it is as seen from the export (clauses 4.5 and 4.6)."""
    folders: list[Path] = []
    here = os.path.realpath(config_path.parent)
    for position, stored in enumerate(config.cache_paths):
        candidates = [os.path.abspath(stored)]
        if seal is not None:
            candidates.append(os.path.normpath(os.path.join(here, seal.relative_paths[position])))
        elif not os.path.isabs(stored):
            candidates.append(os.path.normpath(os.path.join(here, stored)))
        candidates = list(dict.fromkeys(candidates))
        others: dict[str, str] = {}
        for candidate in candidates:
            if not os.path.isdir(candidate):
                continue
            problem = "" if seal is None else _mismatch(position, candidate, seal.caches[position])
            if not problem:
                folders.append(Path(candidate))
                break
            others[candidate] = problem
        else:
            _refuse_cache(config_path, position, candidates, others)
    return folders


def _mismatch(position: int, folder: str, expected: Identity) -> str:
    try:
        return _differences(expected, _identity(position, folder))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"no manifest.json that can be read ({reason})"


def _refuse_cache(config_path: Path, position: int, candidates: Sequence[str], others: Mapping[str, str]) -> NoReturn:
    places = " nor at ".join(candidates)
    if not others:
        raise CacheNotFoundError(
            f"{config_path}: cache {position} is not at {places}; move it to where it was, put a symbolic link there, "
            f"or correct cache_paths in {CONFIG_FILE}",
            kind="cache-not-found",
            path=candidates[0],
        )
    found = "; ".join(f"{candidate} has {problem}" for candidate, problem in others.items())
    missing = [candidate for candidate in candidates if candidate not in others]
    elsewhere = f"; nothing is at {missing[0]}" if missing else ""
    raise CorruptCacheError(
        f"{config_path}: cache {position} is not the one that was exported: {found}{elsewhere}; "
        "restore that cache, or open the caches as they are and export again",
        kind="cache-differs",
        path=next(iter(others)),
    )


# ------------------------------------------------------------------------------------------------------------------- JSON


def _given_path(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be str or Path; got {type(path).__name__}")
    return Path(cast("str | os.PathLike[str]", path))


def _read_json(path: Path) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {key!r} occurs twice")
            found[key] = value
        return found

    try:
        data = path.read_bytes()
    except OSError as error:
        _unreadable(path, error)
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        _malformed(path, f"it is not a JSON object that can be read: {error}", error)
    if not isinstance(value, dict):
        _malformed(path, "it is not a JSON object")
    return cast("dict[str, object]", value)


class _Fields:
    """The fields of one JSON object, taken with their types."""

    def __init__(self, path: Path, value: object, prefix: str = "") -> None:
        if not isinstance(value, dict):
            _malformed(path, f"{prefix.rstrip('.')} must be an object")
        self._path = path
        self._value = cast("dict[str, Any]", value)
        self._prefix = prefix
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def of(self, key: str, kind: type, name: str) -> Any:
        if key not in self._value:
            _malformed(self._path, f"the key {self._prefix}{key} is missing")
        value = self._value[key]
        if not isinstance(value, kind):
            _malformed(self._path, f"{self._prefix}{key} must be {name}")
        self._taken.add(key)
        return value

    def integer(self, key: str, least: int, most: int) -> int:
        value = self.of(key, int, "an integer")
        if isinstance(value, bool) or not least <= value <= most:
            _malformed(self._path, f"{self._prefix}{key} must be an integer from {least} to {most}")
        return int(value)

    def version(self, key: str, known: int) -> None:
        version = self.integer(key, 0, _MAX_U64)
        if version != known:
            raise UnsupportedVersionError(
                f"{self._path}: version {version} of exports is not known, only {known}; upgrade dataset-rt, or export again",
                kind="unsupported-version",
                path=self._path,
            )

    def texts(self, key: str) -> list[str]:
        value = self.of(key, list, "an array")
        if not value or not all(isinstance(each, str) and each and "\0" not in each for each in value):
            _malformed(self._path, f"{self._prefix}{key} must be an array of paths, with at least one")
        return list(value)

    def nothing_else(self) -> None:
        unknown = next((key for key in self._value if key not in self._taken), None)
        if unknown is not None:
            _malformed(self._path, f"the key {self._prefix}{unknown} is unknown")


def _malformed(path: Path, problem: str, cause: BaseException | None = None) -> NoReturn:
    raise CorruptCacheError(
        f"{path}: {problem}; restore the file, or export again", kind="malformed-export", path=path
    ) from cause


def _unreadable(path: Path, error: OSError) -> NoReturn:
    raise StorageError(f"{path}: cannot be read: {error.strerror or error}", path=path, errno=error.errno) from error


def _own_version() -> str:
    from dataset_rt import __version__

    return __version__
