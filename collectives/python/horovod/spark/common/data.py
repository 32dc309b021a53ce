# SPDX-License-Identifier: Apache-2.0
"""Training data: a DataFrame becomes Parquet files in a store, of which each rank reads its share in batches."""

from __future__ import annotations

import collections
import concurrent.futures
import json
import posixpath

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.fs
import pyarrow.parquet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_VALIDATION = "__validation"
_REPORT = "path string, is_validation boolean, shapes string, error string"
# What a rank mixes the rows of, unless shuffle_buffer_size says how many.
_SHUFFLED_BYTES = 256 << 20


def dense(column: pyarrow.Array | pyarrow.ChunkedArray, name: str) -> np.ndarray:
    """An array of shape (rows, ...) from numbers, or from arrays or Spark's vectors of one length. ValueError for
    anything else, null values included."""
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise ValueError(f"column {name!r} has null values: drop the rows or fill them (df.na.drop(), df.na.fill(0))")
    if pyarrow.types.is_struct(column.type) and column.type.get_field_index("indices") >= 0:
        column = pyarrow.array([_of_vector(each) for each in column.to_pylist()], pyarrow.list_(pyarrow.float64()))
    kind = column.type
    kinds = pyarrow.types
    if any(is_of(kind) for is_of in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        lengths = sorted(pyarrow.compute.list_value_length(column).unique().to_pylist())
        if len(lengths) > 1:
            raise ValueError(f"column {name!r} has arrays of different lengths: from {lengths[0]} to {lengths[-1]}")
        inner = dense(column.flatten(), name)
        return inner.reshape(len(column), lengths[0] if lengths else 0, *inner.shape[1:])
    if not any(is_of(kind) for is_of in (kinds.is_integer, kinds.is_floating, kinds.is_boolean)):
        raise ValueError(f"column {name!r} is of type {kind}: expected numbers, or arrays or vectors of numbers")
    return column.to_numpy(zero_copy_only=False)


def _of_vector(fields):
    """The values of a Vector of Spark, as Parquet has it."""
    if fields["type"] == 1:
        return fields["values"]
    values = [0.0] * fields["size"]
    for index, value in zip(fields["indices"], fields["values"]):
        values[index] = value
    return values


# --- from a DataFrame to files, in Spark -----------------------------------------------------------


def write(
    df: Any, store: Any, folder: str, columns: list[str], validation: Any, seed: Any, partitions: int, check: bool
) -> Any:
    """Writes these columns of a DataFrame as Parquet files: (files to train on, files to validate with). ValueError
    for a column that is missing, or whose values are not numbers of one shape (where check says so). Blocks.

    Args:
        folder: the name of a new folder in both data paths of the store
        validation: the fraction of the rows to validate with, or a column that is true or not 0 for those; or None
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import functions, types

    need_columns(df.columns, [*columns, *([validation] if isinstance(validation, str) else [])], "the DataFrame")
    chosen = []
    for name in columns:
        kind = df.schema[name].dataType
        column = df[f"`{name}`"]
        if isinstance(kind, VectorUDT):
            column = vector_to_array(column)
        elif isinstance(kind, types.DecimalType):
            column = column.cast("double")
        chosen.append(column.alias(name))
    if isinstance(validation, str):
        marked = functions.coalesce(df[f"`{validation}`"].cast("boolean"), functions.lit(False))
    else:
        marked = functions.rand(seed) < float(validation or 0)
    selected = df.select(*chosen, marked.alias(_VALIDATION)).repartition(partitions)
    if seed is not None:
        selected = selected.sortWithinPartitions(*columns)  # Spark merges what it repartitions in any order
    folders = [posixpath.join(path, folder) for path in (store.get_train_data_path(), store.get_val_data_path())]
    names = columns if check else []

    def write_partition(batches: Iterable[Any]) -> Iterator[Any]:
        from horovod.spark.common import data

        return data.write_partition(store, folders, names, batches)

    rows = selected.mapInArrow(write_partition, _REPORT).collect()
    for row in rows:
        if row.error:
            raise ValueError(f"the DataFrame: {row.error}")
    shapes = {row.shapes for row in rows}
    if len(shapes) > 1:
        raise ValueError(f"the DataFrame has arrays of different lengths in different rows: {sorted(shapes)[:2]}")
    return tuple(sorted({row.path for row in rows if row.is_validation == which}) for which in (False, True))


def need_columns(there: list[str], wanted: list[str], where: str) -> None:
    """ValueError if a wanted column is not there."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(f"{where} has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, there))}")


def write_partition(store: Any, folders: list[str], columns: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    """The body of a task: writes a file each of the rows to train on and to validate with, where there are any. A
    batch becomes a row group. Mistakes of the data are reported: Spark would start a task that fails again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    # An attempt has files of its own. The driver uses those of the attempts that ended well.
    name = f"part-{context.partitionId():05d}-{context.taskAttemptId()}.parquet"
    files: dict[bool, Any] = {}
    shapes = set()
    error = ""
    try:
        for batch in batches:
            table = pyarrow.Table.from_batches([batch])
            mask = table[_VALIDATION]
            for which in (False, True):
                rows = table.filter(mask if which else pyarrow.compute.invert(mask)).drop([_VALIDATION])
                if error or not rows.num_rows:
                    continue
                try:
                    found = {column: dense(rows[column], column).shape[1:] for column in columns}
                    shapes.add(json.dumps(found))
                except ValueError as mistake:
                    error = str(mistake)
                    continue
                if which not in files:
                    filesystem, folder = store.locate(folders[which])
                    filesystem.create_dir(folder, recursive=True)
                    files[which] = pyarrow.parquet.ParquetWriter(f"{folder}/{name}", rows.schema, filesystem=filesystem)
                files[which].write_table(rows)
    finally:
        for file in files.values():
            file.close()
    reports = [(f"{folders[which]}/{name}", which) for which in files] or ([("", False)] if error else [])
    for path, which in reports:
        for shape in sorted(shapes) or [""]:
            yield pyarrow.RecordBatch.from_pydict(
                {"path": [path], "is_validation": [which], "shapes": [shape], "error": [error]}
            )


# --- what the files have, in the driver ------------------------------------------------------------


def files_of(store: Any, folder: str) -> list[str]:
    """The Parquet files of a data set, which may have folders. ValueError if there are none."""
    filesystem, inner = store.locate(folder)
    selector = pyarrow.fs.FileSelector(inner, recursive=True, allow_not_found=True)
    found = [
        posixpath.join(folder, posixpath.relpath(info.path, inner))
        for info in filesystem.get_file_info(selector)
        if info.is_file and info.path.endswith(".parquet") and not info.base_name.startswith(("_", "."))
    ]
    if not found:
        raise ValueError(f"{folder} has no Parquet files (*.parquet)")
    return sorted(found)


def row_groups_of(store: Any, files: list[str], columns: list[str]) -> list[tuple[str, int, int]]:
    """(file, number, rows) of all row groups. ValueError for a file that lacks a column, or that is not there."""

    def read(path):
        filesystem, inner = store.locate(path)
        try:
            with pyarrow.parquet.ParquetFile(inner, filesystem=filesystem) as file:
                need_columns(file.schema_arrow.names, columns, path)
                return [(path, each, file.metadata.row_group(each).num_rows) for each in range(file.num_row_groups)]
        except FileNotFoundError as error:
            raise ValueError(
                f"{path} is not here, though an executor has written it: the folder of a store has to be shared by the "
                "driver and all executors"
            ) from error

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [group for groups in pool.map(read, files) for group in groups if group[2]]


# --- the share of a rank ---------------------------------------------------------------------------


class Share:
    """The rows of a rank: as many on every rank, so that all take the same steps. Rank r of n has the r-th n-th of the
    rows; where they do not divide, up to n - 1 rows belong to two ranks."""

    def __init__(self, groups: list[tuple[str, int, int]], rank: int, size: int) -> None:
        total = sum(rows for _, _, rows in groups)
        self.rows = -(-total // size)
        begin = min(rank * self.rows, total - self.rows)
        self.pieces = []  # file, row group, first row, rows
        for path, number, rows in groups:
            first, last = max(0, begin), min(rows, begin + self.rows)
            if first < last:
                self.pieces.append((path, number, first, last - first))
            begin -= rows

    def steps(self, batch_size: int, given: int | None) -> int:
        """Of an epoch: as many as it takes for each row once, unless given."""
        return given or -(-self.rows // batch_size)


class Reader:
    """Reads the share of a rank in batches, which are dicts: column -> array of shape (rows, ...).

    Args:
        shuffle_rows: how many rows to mix at a time: None for those of 256 MiB, 0 to keep the order
        workers: how many row groups to read ahead, each in a thread
        keep: keep the data in memory after the first epoch
        transform: a function of a pandas DataFrame that returns one, or None
        float_type: the type of all floats
    """

    def __init__(
        self,
        store: Any,
        share: Share,
        columns: list[str],
        batch_size: int,
        shuffle_rows: int | None,
        seed: int,
        workers: int,
        keep: bool,
        transform: Any,
        float_type: Any,
    ) -> None:
        self._store, self._share, self._columns = store, share, columns
        self._batch_size, self._shuffle_rows, self._seed = batch_size, shuffle_rows, seed
        self._workers, self._keep, self._transform, self._float_type = workers, keep, transform, np.dtype(float_type)
        self._kept: dict[str, np.ndarray] | None = None
        self._passes = 0

    def batches(self, steps: int) -> Iterator[dict[str, np.ndarray]]:
        """This number of batches; after the last row it starts again. The batch before that may be a smaller one."""
        while True:
            for batch in self._batches_of_a_pass():
                yield batch
                steps -= 1
                if not steps:
                    return

    def _batches_of_a_pass(self):
        rest: dict[str, np.ndarray] | None = None
        for block in self._blocks():
            block = block if rest is None else _joined([rest, block])
            rows = _rows(block)
            whole = rows - rows % self._batch_size
            for begin in range(0, whole, self._batch_size):
                yield _rows_from(block, begin, begin + self._batch_size)
            rest = _rows_from(block, whole, rows) if whole < rows else None
        if rest is not None:
            yield rest

    def _blocks(self):
        """The share in blocks, whose rows are mixed."""
        random = np.random.default_rng((self._seed, self._passes))
        self._passes += 1
        if self._keep and self._kept is None:
            self._kept = _joined(list(self._read_ahead(self._share.pieces)))
        if self._shuffle_rows == 0:
            yield from self._read_ahead(self._share.pieces) if self._kept is None else [self._kept]
        elif self._kept is not None:
            yield _mixed(self._kept, random)
        else:
            pieces = self._share.pieces
            yield from self._mixed_blocks([pieces[each] for each in random.permutation(len(pieces))], random)

    def _mixed_blocks(self, pieces, random):
        waiting: list[dict[str, np.ndarray]] = []
        for piece in self._read_ahead(pieces):
            waiting.append(piece)
            if self._shuffle_rows is None:
                is_full = sum(array.nbytes for each in waiting for array in each.values()) >= _SHUFFLED_BYTES
            else:
                is_full = sum(map(_rows, waiting)) >= self._shuffle_rows
            if is_full:
                yield _mixed(_joined(waiting), random)
                waiting = []
        if waiting:
            yield _mixed(_joined(waiting), random)

    def _read_ahead(self, pieces):
        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            pending: collections.deque[Any] = collections.deque()
            for piece in pieces:
                pending.append(pool.submit(self._read, *piece))
                if len(pending) > self._workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _read(self, path, number, first, rows):
        filesystem, inner = self._store.locate(path)
        # Where rows are transformed, the function may want any column.
        columns = self._columns if self._transform is None else None
        with pyarrow.parquet.ParquetFile(inner, filesystem=filesystem) as file:
            table = file.read_row_group(number, columns=columns).slice(first, rows)
        if self._transform is not None:
            return self._transformed(table)
        return {name: _with_floats(dense(table[name], name), self._float_type) for name in self._columns}

    def _transformed(self, table):
        frame = self._transform(table.to_pandas())
        if not hasattr(frame, "columns") or len(frame) != table.num_rows:
            raise ValueError(
                f"transformation_fn returned {type(frame).__name__} of {len(frame)} rows for a DataFrame of "
                f"{table.num_rows}: expected a pandas DataFrame with as many rows"
            )
        need_columns(list(frame.columns), self._columns, "the DataFrame that transformation_fn returned")
        arrays = arrays_of((frame[name] for name in self._columns), self._columns, self._float_type)
        return dict(zip(self._columns, arrays))


def arrays_of(columns: Iterable[Any], names: list[str], float_type: Any) -> list[np.ndarray]:
    """Arrays of shape (rows, ...) from pandas series of numbers or of arrays of one shape. ValueError for others."""
    return [_with_floats(_of_series(column, name), float_type) for column, name in zip(columns, names)]


def _with_floats(array, float_type):
    return array.astype(float_type, copy=False) if array.dtype.kind == "f" else array


def _of_series(series, name):
    values = series.to_numpy()
    if values.dtype == object:
        if series.isna().any():
            raise ValueError(f"column {name!r} has null values")
        try:
            values = _stacked(values) if len(values) else np.empty(0)
        except ValueError as error:
            raise ValueError(f"column {name!r} has arrays of different shapes: {error}") from error
    if values.dtype.kind not in "biuf":
        raise ValueError(f"column {name!r} is of type {values.dtype}: expected numbers, or arrays of numbers")
    return values


def _stacked(values):
    is_nested = isinstance(values[0], np.ndarray) and values[0].dtype == object
    return np.stack([_stacked(each) if is_nested else np.asarray(each) for each in values])


def _rows(block):
    return len(next(iter(block.values())))


def _rows_from(block, begin, end):
    return {name: array[begin:end] for name, array in block.items()}


def _joined(blocks):
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _mixed(block, random):
    order = random.permutation(_rows(block))
    return {name: array[order] for name, array in block.items()}
