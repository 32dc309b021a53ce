# SPDX-License-Identifier: Apache-2.0
"""Small helpers, by the names that integrations import."""

from __future__ import annotations

import ray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def map_blocking(fn: Callable[[Any], Any], collection: Iterable[Any]) -> Any:
    """The results of the calls that fn starts, one for each element."""
    return ray.get([fn(each) for each in collection])


def detect_nics(settings: Any, all_host_names: Iterable[str] = (), node_workers: Any = None) -> list[str]:
    """The network interfaces that the settings name; without any, the ranks find their own."""
    return sorted(settings.nics or ())


def nics_to_env_var(nics: Iterable[str]) -> dict[str, str]:
    """The variables that have ranks use these network interfaces; none where there is no choice."""
    names = list(nics)
    return {"HOROVOD_GLOO_IFACE": names[0], "NCCL_SOCKET_IFNAME": ",".join(names)} if names else {}
