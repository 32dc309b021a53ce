# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks; see hora.process_sets."""

from hora.process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    get_process_set_ids_and_ranks,
    global_process_set,
    is_process_set_included,
    remove_process_set,
)
