# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes, for the peers of one job.

cloudpickle carries functions and classes of the main script too. Where it is not installed, the
copy that the bundle brings along is used, then plain pickle.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import functools
import io
import os
import pickle
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Class -> what a framework has to pickle its objects by, in place of their own __reduce_ex__().
reducers: dict[type, Callable[[Any], Any]] = {}

_HERE = os.path.dirname(os.path.abspath(__file__))
# The first copy that is there. The newer one is for Python 3.8 and later.
_BUNDLED = ("_bundled_newer", "_bundled") if sys.version_info >= (3, 8) else ("_bundled",)


def _pickler():
    """The module to pickle with. What cloudpickle made can only be read where it can be imported
    under its own name, so the bundled copy joins the end of the module path."""
    with contextlib.suppress(ImportError):
        import cloudpickle

        return cloudpickle
    for folder in (os.path.join(_HERE, name) for name in _BUNDLED):
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.append(folder)
            with contextlib.suppress(ImportError):
                import cloudpickle

                return cloudpickle
    return pickle


def _make_path(kind, *parts):
    import pathlib

    return getattr(pathlib, kind)(*parts)


def _reduce_path(path):
    return _make_path, (type(path).__name__, *path.parts)


def _path_reducers():
    """For Python 3.13, whose paths are of a module that older releases lack (findings/python-paths-of-3.13.sh)."""
    import pathlib

    if pathlib.PurePath.__module__ == "pathlib":
        return {}
    return {getattr(pathlib, kind): _reduce_path for kind in ("PosixPath", "PurePosixPath", "PureWindowsPath")}


def _make_lru_cache(function, parameters):
    return functools.lru_cache(**parameters)(function)


def _reduce_lru_cache(cached):
    if cached.__module__ not in ("__main__", "__mp_main__") and "<locals>" not in cached.__qualname__:
        return cached.__qualname__
    if hasattr(cached, "cache_parameters"):  # since Python 3.9
        return _make_lru_cache, (cached.__wrapped__, cached.cache_parameters())
    return _make_lru_cache, (cached.__wrapped__, {"maxsize": cached.cache_info().maxsize})


def _make_cached_property(function, name):
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _reduce_cached_property(cached):
    return _make_cached_property, (cached.func, cached.attrname)


def _make_dispatching_method(function, dispatcher):
    made = functools.singledispatchmethod(function)
    made.dispatcher = dispatcher
    return made


def _reduce_dispatching_method(method):
    return _make_dispatching_method, (method.func, method.dispatcher)


# cloudpickle takes the first for importable; the second has a lock until 3.12, the third weak references in 3.13.
_functools_reducers: dict[type, Callable[[Any], Any]] = {type(functools.lru_cache()(len)): _reduce_lru_cache}
if hasattr(functools, "cached_property"):  # since Python 3.8
    _functools_reducers[functools.cached_property] = _reduce_cached_property
    _functools_reducers[functools.singledispatchmethod] = _reduce_dispatching_method


def _make_dispatcher(name):
    def function():
        pass

    function.__name__ = name
    return functools.singledispatch(function)


def _set_implementations(dispatcher, implementations):
    """Its own is that of object. They come after the dispatcher, since they may call it."""
    for kind, function in implementations.items():
        dispatcher.register(kind, function)
    functools.update_wrapper(dispatcher, implementations[object])


def _by_value(reduce):
    """What cloudpickle sends by value, with what it cannot send: the caches of a function of functools.singledispatch,
    and from 2.2.1 on the __slots__ of a class (findings/cloudpickle-slots.sh)."""

    def reducer_override(self, obj):
        reduced = reduce(self, obj)
        if not isinstance(reduced, tuple):
            return reduced
        registry = getattr(obj, "registry", None)
        if isinstance(obj, types.FunctionType) and isinstance(registry, types.MappingProxyType):
            return _make_dispatcher, (obj.__name__,), dict(registry), None, None, _set_implementations
        if isinstance(obj, type) and vars(obj).get("__slots__"):
            metaclass, _, _, keywords, *_ = reduced[1]
            if metaclass is type(obj):  # not what is made of an enumeration
                keywords["__slots__"] = obj.__slots__
        return reduced

    return reducer_override


@functools.lru_cache(maxsize=None)
def _writer(base, has_paths):
    """The class that pickles as `base` does, with what is above."""
    others = copyreg.dispatch_table if base is pickle.Pickler else base.dispatch_table
    own = (_functools_reducers, reducers, _path_reducers() if has_paths else {})
    # An attribute of the class: an instance reads its table when it is made.
    body = {"dispatch_table": collections.ChainMap(*own, others)}
    if hasattr(base, "reducer_override"):
        body["reducer_override"] = _by_value(base.reducer_override)
    return type("Pickler", (base,), body)


def dumps(obj: Any, what: str = "this object") -> bytes:
    """Bytes for loads(); TypeError names what cannot be sent, and why."""
    pickler = _pickler()
    main = sys.modules.get("__mp_main__")
    if getattr(main, "__name__", "") == "__mp_main__" and hasattr(pickler, "register_pickle_by_value"):
        # What multiprocessing calls the main script in a process that it spawned: no other process can import it.
        pickler.register_pickle_by_value(main)
    try:
        file = io.BytesIO()
        _writer(pickler.Pickler, "pathlib" in sys.modules)(file, protocol=min(4, pickle.HIGHEST_PROTOCOL)).dump(obj)
        return file.getvalue()
    except Exception as error:
        text = f"{what} cannot be sent to another process: {type(error).__name__}: {error}"
        raise TypeError(f"{text}{_advice(error, pickler)}") from error


def _advice(error, pickler):
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback.tb_frame.f_code.co_name == "__annotate__":
        # Since Python 3.14, annotations are evaluated when something asks for them.
        return (
            ". An annotation uses a name that is not there at run time, such as one imported under TYPE_CHECKING: put "
            "the annotation in quotes, or `from __future__ import annotations` at the top of the file"
        )
    version = getattr(pickler, "__version__", "")
    if sys.version_info >= (3, 14) and version.startswith(("0.", "1.", "2.", "3.0.", "3.1.0", "3.1.1")):
        return f". cloudpickle {version} does not know this Python: install cloudpickle 3.1.2 or later"
    return ""


def loads(data: bytes | memoryview, what: str = "an object") -> Any:
    """The object; ImportError names the module that this process lacks."""
    _pickler()
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"{what} needs something that this process cannot import: {error}. Make it importable "
            "here (install it, or send the file along), or define it in the main script"
        ) from error
