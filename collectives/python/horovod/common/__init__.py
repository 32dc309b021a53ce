# SPDX-License-Identifier: Apache-2.0
"""What the framework modules share."""
