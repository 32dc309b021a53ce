# SPDX-License-Identifier: Apache-2.0
"""Parameters of estimators and of their models, as pyspark.ml has them, and how they are saved."""

from __future__ import annotations

import base64
import difflib

from pyspark.ml.param import Param, Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from hora import serialization

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar


def parameters(**table: tuple[Any, str]) -> Callable[[type], type]:
    """Decorates a class with parameters: name=(default, description). num_proc gets setNumProc() and getNumProc()."""

    def decorate(cls):
        for name, (default, description) in table.items():
            setattr(cls, name, Param(Params._dummy(), name, description))
            camel = "".join(part.capitalize() for part in name.split("_"))
            setattr(cls, f"set{camel}", _setter(name))
            setattr(cls, f"get{camel}", _getter(name))
        cls._table = {**getattr(cls, "_table", {}), **table}
        return cls

    return decorate


def _setter(name):
    def set_(self, value):
        return self.set(getattr(self, name), value)

    set_.__doc__ = f"Sets {name}; returns this object."
    return set_


def _getter(name):
    def get(self):
        return self.getOrDefault(name)

    get.__doc__ = f"Returns {name}."
    return get


class Parameters(Params, MLWritable, MLReadable):
    """An object with the parameters that parameters() lists, given by their names to its constructor. Can be saved with
    them by save() and write(), alone and within a Pipeline. load() and read() run code that a file brings: load only
    what you trust. TypeError for a name that is none of them."""

    _table: ClassVar[dict[str, tuple[Any, str]]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__()
        for name, (default, _) in self._table.items():
            self._defaultParamMap[getattr(self, name)] = default
        for name, value in given.items():
            if name not in self._table:
                close = difflib.get_close_matches(name, self._table, 1)
                advice = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{advice}")
            self.set(getattr(self, name), value)

    def set(self, param: Any, value: Any) -> Any:
        """Sets a parameter; returns this object."""
        super().set(param, value)
        return self

    def values(self) -> dict[str, Any]:
        """The values of all parameters by their names."""
        return {name: self.getOrDefault(name) for name in self._table}

    def write(self) -> Any:
        """A writer of pyspark.ml: write().overwrite().save(path)."""
        return _Writer(self)

    @classmethod
    def read(cls) -> Any:
        """A reader of pyspark.ml: read().load(path)."""
        return _Reader(cls)

    def _to_save(self):
        """The values that are saved, which pickle can carry."""
        return {param.name: value for param, value in self._paramMap.items()}

    def _restore(self, saved):
        for name, value in saved.items():
            self.set(getattr(self, name), value)


class _Writer(MLWriter):
    def __init__(self, instance):
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        """Writes the metadata of pyspark.ml, whose parameters are one pickle."""
        data = serialization.dumps(self._instance._to_save(), f"{type(self._instance).__name__} with its parameters")
        context = self.sc if hasattr(self, "sc") else self.sparkSession
        DefaultParamsWriter.saveMetadata(
            self._instance, path, context, paramMap={"pickled": base64.b64encode(data).decode()}
        )


class _Reader(MLReader):
    def __init__(self, cls):
        super().__init__()
        self._class = cls

    def load(self, path: str) -> Any:
        """The object. ImportError names what this process lacks."""
        context = self.sc if hasattr(self, "sc") else self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, context)
        made = self._class()
        made._resetUid(metadata["uid"])
        made._restore(serialization.loads(base64.b64decode(metadata["paramMap"]["pickled"]), path))
        return made
