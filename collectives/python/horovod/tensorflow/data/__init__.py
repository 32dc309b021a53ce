# SPDX-License-Identifier: Apache-2.0
"""Feeding data."""
