# SPDX-License-Identifier: Apache-2.0
"""State that survives a change of the ranks; see hora.elastic."""

from hora.elastic import ObjectState, State, run_fn  # noqa: F401
