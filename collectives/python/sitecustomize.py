# SPDX-License-Identifier: Apache-2.0
"""Every Python that a rank starts runs this before its program, so that horarun can ask for its stacks: on an otherwise
unused signal it writes the stacks of all threads to the agent of its host. Has JAX and TensorFlow find the job, and
PyTorch the backend "hora", if they are imported. Also runs the sitecustomize of the environment itself."""

import os
import sys

_C10D = "torch.distributed.distributed_c10d"


def _offer_stacks():
    import _signal
    import _socket
    import faulthandler
    import fcntl

    place = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    place.connect("\0" + os.environ["HORA_STACKS"])
    try:  # out of the way of programs that close and reuse the first descriptors
        number = fcntl.fcntl(place.fileno(), fcntl.F_DUPFD_CLOEXEC, 900)
        place.close()
    except OSError:
        number = place.detach()
    number_of_signal = int(os.environ["HORA_STACKS_SIGNAL"])
    # What faulthandler puts back when the interpreter ends: a request that comes then must not kill the rank.
    _signal.signal(number_of_signal, _signal.SIG_IGN)
    faulthandler.register(number_of_signal, file=number, all_threads=True, chain=False)


def _load(name):
    """A module of hora by its path: importing hora would load all of it."""
    from importlib.util import module_from_spec, spec_from_file_location

    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hora", name + ".py")
    spec = spec_from_file_location("_hora_" + name, place)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _BeforeFrameworks:
    """Notices that JAX, TensorFlow or torch.distributed is imported, and costs the others one look."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _frameworks:
            return None
        _frameworks.remove(name)
        if name == _C10D:
            return cls._registering(path, target)
        try:
            _load("clusters").offer(name)
        except Exception:
            if name == "tensorflow":  # the job has asked for it
                raise
        return None

    @staticmethod
    def _registering(path, target):
        """The module as it is; it registers the backend once it has been loaded."""
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(_C10D, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            try:  # noqa: SIM105 - every start of Python would import contextlib
                _load("torch_backends").register(module)
            except Exception:  # a help, no condition
                pass

        spec.loader.exec_module = exec_module
        return spec


def _run_the_next(seen):
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p) not in seen])
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


# A job within a job has two copies of this file in its path: each runs the next but once.
_seen = sys.__dict__.setdefault("_hora_sitecustomize", set())
_seen.add(os.path.dirname(os.path.abspath(__file__)))
if "HORA_STACKS" in os.environ and len(_seen) == 1:
    try:  # noqa: SIM105 - every start of Python would import contextlib
        _offer_stacks()
    except Exception:  # a help, no condition: old Pythons, no abstract sockets, a port of Python
        pass
if "HOROVOD_RANK" in os.environ and len(_seen) == 1:
    _frameworks = {"jax", "tensorflow", _C10D} if "HORA_TF_CONFIG" in os.environ else {"jax", _C10D}
    sys.meta_path.insert(0, _BeforeFrameworks)
_run_the_next(_seen)
