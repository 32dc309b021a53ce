# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job as clusters that JAX and TensorFlow know (docs/decisions/0049-a-cluster-class-for-jax.md).

`jax.distributed.initialize()` needs no arguments in them: JAX takes rank and size from the first class of a list that
finds itself at home, and every subclass of its ClusterEnv joins the list. That of this module does so while JAX is
imported. TensorFlow reads TF_CONFIG, which is made when it is imported, where the job asked for it (--tf-config).
sitecustomize loads this file by its path, so that their import does not import all of hora: it imports nothing of hora.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NEEDED = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR")
_SCOPE = "hora_clusters"
# The default of JAX itself.
_DEFAULT_SECONDS = 300
# The longest wait of one request; a connection that takes longer is broken.
_WAIT_SECONDS = 20
# How often each job's coordinator has been asked for, which is the same on all ranks: actors of Ray see several jobs.
_calls: dict[str, int] = {}


def offer(module: str = "jax") -> None:
    """Has JAX find the job, when it is imported or now if it has been; or TensorFlow, which is about to be imported."""
    if module == "tensorflow":
        _set_tf_config()
    elif "jax._src.clusters" in sys.modules:
        _register()
    elif _BeforeClusters not in sys.meta_path:
        sys.meta_path.insert(0, _BeforeClusters)


class _BeforeClusters:
    """Joins the list before the first class of JAX's own, so this one is asked first. Finds no module itself."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("jax._src.clusters.") and name != "jax._src.clusters.cluster":
            sys.meta_path.remove(cls)
            _register()


def _register():
    try:
        from jax._src.clusters.cluster import ClusterEnv

        listed = ClusterEnv._cluster_types
        if not any(getattr(each, "name", "") == "horarun" for each in listed):
            _make_class(ClusterEnv)
            listed.insert(0, listed.pop())  # where JAX had been imported before
    except Exception:  # a help, no condition: in another JAX, initialize() says itself what it needs
        pass


def _make_class(base):
    class HorarunCluster(base):
        name = "horarun"
        opt_in_only_method = False

        @classmethod
        def is_env_present(cls):
            # The numbers of an elastic job change, and JAX's world cannot.
            return all(os.environ.get(name) for name in _NEEDED) and not os.environ.get("HOROVOD_ELASTIC")

        @classmethod
        def get_coordinator_address(cls, timeout_secs=None, override_coordinator_port=None):
            job = os.environ.get("HORA_JOB_ID", "")
            number = _calls[job] = _calls.get(job, -1) + 1
            return _coordinator(f"coordinator.{number}", timeout_secs or _DEFAULT_SECONDS, override_coordinator_port)

        @classmethod
        def get_process_count(cls):
            return int(os.environ["HOROVOD_SIZE"])

        @classmethod
        def get_process_id(cls):
            return int(os.environ["HOROVOD_RANK"])

        @classmethod
        def get_local_process_id(cls):
            """The GPU of this process among those that it sees; None: all of them."""
            # --gpus-per-rank sets JAX_LOCAL_DEVICE_IDS, which old releases do not read.
            if os.environ["HOROVOD_LOCAL_SIZE"] == "1" or os.environ.get("JAX_LOCAL_DEVICE_IDS"):
                return None
            return int(os.environ["HOROVOD_LOCAL_RANK"])


def _set_tf_config():
    import json
    import time

    kind, rank, size = os.environ.get("HORA_TF_CONFIG"), os.environ["HOROVOD_RANK"], int(os.environ["HOROVOD_SIZE"])
    if not kind or "TF_CONFIG" in os.environ:
        return
    deadline = time.monotonic() + _DEFAULT_SECONDS
    trouble = f"has not imported tensorflow within {_DEFAULT_SECONDS} s; --tf-config needs every rank to"
    # No other rank of this host gets the port before all have theirs.
    with _free_port() as held:
        # All programs of a rank have one address, also those that run one after another.
        if _ask("GET", f"/{_SCOPE}/tensorflow.{rank}", deadline) is None:
            address = _address(_own_address(), held.getsockname()[1])
            _ask("PUT", f"/{_SCOPE}/tensorflow.{rank}", deadline, address.encode())
        addresses = [_wait(f"tensorflow.{each}", deadline, f"rank {each} {trouble}") for each in range(size)]
    cluster, task = {"worker": addresses}, {"type": "worker", "index": int(rank)}
    if kind == "chief":
        cluster = {"chief": addresses[:1], **({"worker": addresses[1:]} if size > 1 else {})}
        task = {"type": "chief", "index": 0} if rank == "0" else {"type": "worker", "index": int(rank) - 1}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})


def _coordinator(key, seconds, port):
    """The address of rank 0, with a port that rank 0 finds free there when it asks, or with the port that is given."""
    import time

    deadline = time.monotonic() + seconds
    if os.environ["HOROVOD_RANK"] == "0":
        if not port:
            with _free_port() as probe:
                port = probe.getsockname()[1]
        address = _address(os.environ.get("MASTER_ADDR", "127.0.0.1"), port)
        _ask("PUT", f"/{_SCOPE}/{key}", deadline, address.encode())
        return address
    return _wait(
        key,
        deadline,
        f"rank 0 has not called jax.distributed.initialize() within {seconds:g} s (initialization_timeout); every rank "
        "has to call it",
    )


def _wait(key, deadline, trouble):
    """The value of that key, once another rank has set it."""
    import time

    while True:
        left = deadline - time.monotonic()
        found = _ask("GET", f"/{_SCOPE}/{key}?wait={min(max(left, 0), _WAIT_SECONDS):.3f}", deadline)
        if found is not None:
            return found.decode()
        if left <= 0:
            raise TimeoutError(f"rank {os.environ['HOROVOD_RANK']}: {trouble}")


def _own_address():
    """That by which this host reaches rank 0's, so that rank 0 reaches it, too."""
    import socket

    first = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, kind, protocol, _, place = socket.getaddrinfo(first, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)  # sends nothing
        return probe.getsockname()[0]


def _free_port():
    """A socket that has a port which is free here, and keeps it until it is closed."""
    import socket

    probe = socket.socket()
    probe.bind(("", 0))
    return probe


def _address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ask(method, target, deadline, body=None):
    """The value that the job's rendezvous has (docs/reference/http-api.md); None where it has none."""
    import http.client
    import time

    server = f"{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}"
    token = os.environ.get("HORA_RENDEZVOUS_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    while True:
        try:
            connection = _connection()
            try:
                connection.request(method, target, body, headers)
                reply = connection.getresponse()
                value = reply.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"the rendezvous of the job at {server} does not answer: {error}") from error
        if reply.status == 200:
            return value
        if reply.status == 404:
            return None
        if reply.status != 503 or time.monotonic() > deadline:  # 503: busy
            raise ConnectionError(f"the rendezvous of the job at {server} answers {reply.status} to {method} {target}")
        time.sleep(0.2)


def _connection():
    import http.client

    host, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    fingerprint = os.environ.get("HORA_RENDEZVOUS_TLS")
    if not fingerprint:
        return http.client.HTTPConnection(host, port, timeout=_WAIT_SECONDS + 10)
    import hashlib
    import ssl

    # The certificate of the job is the only one, and no authority has signed it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=_WAIT_SECONDS + 10, context=context)
    connection.connect()
    if hashlib.sha256(connection.sock.getpeercert(binary_form=True)).hexdigest() != fingerprint.lower():
        connection.close()
        raise ssl.SSLError("it has another certificate than HORA_RENDEZVOUS_TLS says")
    return connection
