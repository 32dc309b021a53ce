# SPDX-License-Identifier: Apache-2.0
"""How costs grow with the size of a job."""

import math


def exponents(sizes, medians, costs):
    """The slope of each cost between the two largest sizes, on logarithmic axes: 1 is linear, 2 quadratic."""
    small, large = sizes[-2], sizes[-1]
    return {
        cost: math.log(medians[large][cost] / medians[small][cost]) / math.log(large / small)
        for cost in costs
        if medians[small][cost] > 0 and medians[large][cost] > 0
    }
