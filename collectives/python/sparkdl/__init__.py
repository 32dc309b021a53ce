# SPDX-License-Identifier: Apache-2.0
"""The name that notebooks import HorovodRunner by; see hora.runner."""

from hora.runner import HorovodRunner, log_to_driver
