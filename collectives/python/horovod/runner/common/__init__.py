# SPDX-License-Identifier: Apache-2.0
"""Helpers of Horovod's launcher that integrations import."""
