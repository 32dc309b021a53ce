# SPDX-License-Identifier: Apache-2.0
"""horovod.run: a function on every rank of a new job."""

from __future__ import annotations

import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls func(*args, **kwargs) on num_proc ranks of a new job; returns the results by rank.

    Blocks until the job has ended. The arguments are Horovod's; each is the option of horarun of the same name
    (docs/reference/cli.md). start_timeout is in seconds, cooldown_range a pair of seconds. hosts ("a:2,b:2") or
    hostfile say where; without them the ranks run on the first slots of the allocation (Slurm, ...) that this process
    is in, or on this machine. min_num_proc or host_discovery_script make the job elastic; it returns the results of
    its first min_num_proc ranks.

    Raises RuntimeError with the traceback of the rank that failed, after the words by which programs know the error
    of Horovod; ValueError or TypeError for a wrong argument; FileNotFoundError if horarun was not found.
    """
    from hora import launch

    if np is not None:
        num_proc = _renamed("num_proc", num_proc if num_proc != 1 else None, "np", np)
    min_num_proc = _renamed("min_num_proc", min_num_proc, "min_np", min_np)
    max_num_proc = _renamed("max_num_proc", max_num_proc, "max_np", max_np)
    if network_interface:
        warnings.warn("network_interface= is deprecated; use network_interfaces=", DeprecationWarning, stacklevel=2)
        network_interfaces = network_interface
    launch.check_call(func, args, kwargs, num_proc if num_proc is not None else 1, "num_proc")
    if hosts is not None and hostfile is not None:
        raise ValueError("give hosts= or hostfile=, not both")
    if use_gloo and use_mpi:
        raise ValueError("give use_gloo= or use_mpi=, not both")
    options = []

    def option(flag, value):
        if value is not None:
            options.extend([flag, str(value)])

    option("--min-np", min_num_proc)
    option("--max-np", max_num_proc)
    option("--slots-per-host", slots)
    option("--reset-limit", reset_limit)
    if cooldown_range:
        options.extend(["--blacklist-cooldown-range", *map(str, cooldown_range)])
    option("--host-discovery-script", host_discovery_script)
    option("--start-timeout", start_timeout)
    option("-p", ssh_port)
    option("-i", ssh_identity_file)
    option("--output-filename", output_filename)
    if isinstance(network_interfaces, str):
        network_interfaces = network_interfaces.split(",")
    option("--network-interfaces", ",".join(network_interfaces) if network_interfaces else None)
    for flag, wanted in (
        ("--disable-cache", disable_cache),
        ("--verbose", verbose),
        ("--gloo", use_gloo),
        ("--mpi", use_mpi),
    ):
        if wanted:
            options.append(flag)
    option("--mpi-args", mpi_args)
    elastic = min_num_proc is not None or host_discovery_script is not None
    results = min_num_proc if elastic else None
    try:
        return launch.run(func, args, kwargs, num_proc, hosts, hostfile, options, executable, results=results)
    except launch.JobFailed as failure:
        # Programs compare with this text, which every failure of Horovod has.
        beginning = "Horovod detected that one or more processes exited with non-zero status"
        error = RuntimeError(f"{beginning}: {failure}")
        error.rank = failure.rank  # type: ignore[attr-defined]
        raise error from failure.__cause__


def _renamed(name, value, old_name, old_value):
    if old_value is None:
        return value
    if value is not None:
        raise ValueError(f"give {name}= or {old_name}=, not both ({old_name}= is the old name)")
    warnings.warn(f"{old_name}= is deprecated; use {name}=", DeprecationWarning, stacklevel=3)
    return old_value
