"""See hora.runner."""

from hora.runner import log_to_driver  # noqa: F401
