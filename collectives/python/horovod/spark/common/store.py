# SPDX-License-Identifier: Apache-2.0
"""Where estimators keep training data and checkpoints: a folder that the driver and all executors reach."""

from __future__ import annotations

import os
import posixpath

import pyarrow.fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The kinds of URLs that pyarrow.fs.FileSystem.from_uri() opens.
_OF_ARROW = ("file", "hdfs", "viewfs", "s3", "gs", "gcs", "abfs", "abfss")


class Store:
    """A folder of a filesystem. It holds `intermediate_train_data`, `intermediate_val_data` and `runs/RUN_ID`.

    Each access connects again, so a store may be sent to other processes. Functions with a path take what the other
    functions of the store return, or any path or URL of the same filesystem. They block, and raise OSError where the
    filesystem fails.

    Args:
        prefix_path: a path or a URL: file, hdfs, s3, gs and what else pyarrow.fs.FileSystem.from_uri() knows; any other
            is opened by fsspec, if that is installed
        train_path, val_path: other folders for the data
        storage_options: if given, fsspec opens the URL with these options (s3fs: key, secret, endpoint_url ...)
    """

    def __init__(
        self,
        prefix_path: str = "",
        train_path: str | None = None,
        val_path: str | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        if not prefix_path and not (train_path and val_path):
            raise ValueError("prefix_path is missing: a store needs the path or URL of a folder")
        self.prefix_path = self._normal(prefix_path) if prefix_path else ""
        self._data_paths = [path and self._normal(path) for path in (train_path, val_path)]
        self._storage_options = storage_options
        for path in (self.prefix_path, *self._data_paths):
            _check_scheme(path or "")

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """The store for a path or URL: HDFSStore for hdfs://, DBFSLocalStore for dbfs:/ and /dbfs/, LocalStore for
        file:// and paths, otherwise FilesystemStore."""
        path = str(prefix_path)
        kinds = {"hdfs://": HDFSStore, "dbfs:/": DBFSLocalStore, "/dbfs/": DBFSLocalStore, "file://": LocalStore}
        other = FilesystemStore if "://" in path else LocalStore
        kind = next((kind for start, kind in kinds.items() if path.startswith(start)), other)
        return kind(path, *args, **kwargs)

    def _normal(self, path):
        path = os.fspath(path)
        return path.rstrip("/") if "://" in path else os.path.abspath(path)

    def _within(self, *names):
        if not self.prefix_path:
            raise ValueError("this store has paths of data only: give it a prefix_path for checkpoints, too")
        return posixpath.join(self.prefix_path, *names)

    def get_train_data_path(self) -> str:
        """The folder of the Parquet files to train on."""
        return self._data_paths[0] or self._within("intermediate_train_data")

    def get_val_data_path(self) -> str:
        """The folder of the Parquet files to validate with."""
        return self._data_paths[1] or self._within("intermediate_val_data")

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._within("runs")

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        return self._within("runs", run_id)

    def get_checkpoint_path(self, run_id: str) -> str:
        """The file with the last checkpoint of a run."""
        return self._within("runs", run_id, "checkpoint")

    def get_logs_path(self, run_id: str) -> str:
        """A folder for what your callbacks write about a run. The estimators write nothing there."""
        return self._within("runs", run_id, "logs")

    def locate(self, path: str) -> tuple[pyarrow.fs.FileSystem, str]:
        """The filesystem of a path, and the path within it. ValueError for a URL that is malformed,
        ImportError for what fsspec needs for it and is not here."""
        if "://" not in path:
            return pyarrow.fs.LocalFileSystem(), path
        if self._storage_options is None:
            try:
                return pyarrow.fs.FileSystem.from_uri(path)
            except pyarrow.ArrowInvalid as error:
                if "Unrecognized filesystem type" not in str(error):
                    raise ValueError(f"{path}: {error}") from error
        import fsspec

        filesystem, inner = fsspec.core.url_to_fs(path, **(self._storage_options or {}))
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem)), inner

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        filesystem, inner = self.locate(path)
        return filesystem.get_file_info(inner).type != pyarrow.fs.FileType.NotFound

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        filesystem, inner = self.locate(path)
        with filesystem.open_input_stream(inner) as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file, and its folders. Readers see the old contents or all of the new."""
        filesystem, inner = self.locate(path)
        filesystem.create_dir(posixpath.dirname(inner), recursive=True)
        with filesystem.open_output_stream(f"{inner}.part") as file:
            file.write(data)
        filesystem.move(f"{inner}.part", inner)

    def delete(self, path: str) -> None:
        """Deletes a folder, if it is there."""
        filesystem, inner = self.locate(path)
        if filesystem.get_file_info(inner).type == pyarrow.fs.FileType.Directory:
            filesystem.delete_dir(inner)


def _check_scheme(path):
    """ValueError for a URL of a kind that neither PyArrow nor fsspec knows. Connects to nothing."""
    scheme, is_url, _ = path.partition("://")
    if is_url and "?" in path:
        raise ValueError(f"{path}: a folder within has no place after '?': use storage_options, or the environment")
    if not is_url or scheme in _OF_ARROW:
        return
    try:
        from fsspec.registry import known_implementations, registry
    except ImportError:
        raise ValueError(f"{path}: PyArrow does not know URLs of {scheme!r}; fsspec may: pip install fsspec") from None
    if scheme not in known_implementations and scheme not in registry:
        raise ValueError(f"{path}: no filesystem of PyArrow or fsspec has URLs of {scheme!r}")


class FilesystemStore(Store):
    """A folder that a URL names, such as s3://bucket/folder."""


class LocalStore(Store):
    """A folder that is at the same path on all hosts, such as one of NFS; on one machine, any folder."""

    def _normal(self, path):
        path = os.fspath(path)
        return os.path.abspath(path[len("file://") :] if path.startswith("file://") else path)


class DBFSLocalStore(LocalStore):
    """A folder of Databricks' filesystem, which is mounted at /dbfs on all hosts: dbfs:/folder is /dbfs/folder."""

    def _normal(self, path):
        path = os.fspath(path)
        return super()._normal("/dbfs/" + path[len("dbfs:/") :].lstrip("/") if path.startswith("dbfs:/") else path)


class HDFSStore(Store):
    """A folder of HDFS. PyArrow needs Hadoop's libhdfs on every host, with JAVA_HOME, HADOOP_HOME and CLASSPATH.

    Args:
        prefix_path: a path such as /user/me/experiments, or hdfs://HOST:PORT/PATH
        host, port: the name node. Default: that of the URL, or that of Hadoop's configuration
        user: the user to be. Default: the one of the process
        kerb_ticket: the path of a Kerberos ticket cache
        extra_conf: settings of Hadoop, which replace those of its configuration
        train_path, val_path: other folders for the data
    """

    def __init__(
        self,
        prefix_path: str = "",
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        extra_conf: dict[str, str] | None = None,
        train_path: str | None = None,
        val_path: str | None = None,
    ) -> None:
        super().__init__(prefix_path, train_path, val_path)
        self._host, self._port = host, port
        self._options = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}

    def _normal(self, path):
        return os.fspath(path).rstrip("/")

    def locate(self, path: str) -> tuple[pyarrow.fs.FileSystem, str]:
        """The filesystem of a path, and the path within it."""
        host, port = self._host, self._port
        if path.startswith("hdfs://"):
            place, _, path = path[len("hdfs://") :].partition("/")
            path = f"/{path}"
            name, _, number = place.partition(":")
            host, port = host or name or None, port or int(number or 0)
        return pyarrow.fs.HadoopFileSystem(host or "default", port or 0, **self._options), path
