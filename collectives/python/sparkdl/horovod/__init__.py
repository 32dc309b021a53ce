# SPDX-License-Identifier: Apache-2.0
"""See hora.runner."""

from hora.runner import log_to_driver
