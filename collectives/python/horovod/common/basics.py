# SPDX-License-Identifier: Apache-2.0
"""The runtime's queries as one object, as integrations hold it; see hora.basics."""

from __future__ import annotations

import hora.basics as _basics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HorovodBasics:
    """Every method is the function of that name; the arguments named a compiled extension in
    Horovod and are not needed."""

    Average = _basics.Average
    Sum = _basics.Sum
    Adasum = _basics.Adasum
    Min = _basics.Min
    Max = _basics.Max
    Product = _basics.Product

    def __init__(self, pkg_path: str | None = None, *args: Any) -> None:
        pass


for _name in _basics.__all__:
    if not hasattr(HorovodBasics, _name):  # a reduction is a number and not a function
        setattr(HorovodBasics, _name, staticmethod(getattr(_basics, _name)))
for _index, _op in enumerate(("average", "sum", "adasum", "min", "max", "product")):
    setattr(HorovodBasics, f"horovod_reduce_op_{_op}", staticmethod(lambda value=_index: value))
