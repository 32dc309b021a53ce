"""See sparkdl."""

from sparkdl import log_to_driver  # noqa: F401
