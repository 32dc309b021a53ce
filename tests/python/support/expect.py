# SPDX-License-Identifier: Apache-2.0
"""Small expectations for checks and tests."""

import re


def raises(kind, function, *arguments, **named):
    """The error of that kind that the call raises."""
    try:
        value = function(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{function} gave {value!r}; expected {kind}")


def agree(gather, value):
    """All ranks have the same value."""
    values = gather(value)
    assert all(each == values[0] for each in values), values


def close(actual, expected, tolerance=1e-6):
    """Two arrays or numbers are nearly equal; answers nothing."""
    import numpy as np

    np.testing.assert_allclose(
        np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64), rtol=tolerance, atol=tolerance
    )


def number_in(pattern, text):
    """The number that the pattern's group finds in a program's output."""
    found = re.search(pattern, text)
    assert found, text
    return float(found.group(1))
