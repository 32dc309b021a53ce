# SPDX-License-Identifier: Apache-2.0
"""Keys and message digests, by the names that integrations import. Jobs make keys of their own."""

from __future__ import annotations

import hashlib
import hmac
import secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
DIGEST_LENGTH = 32  # bytes


def make_secret_key() -> bytes:
    """A random key of DIGEST_LENGTH bytes."""
    return secrets.token_bytes(DIGEST_LENGTH)


def compute_digest(key: bytes, msg: Any) -> bytes:
    """HMAC with SHA-256 of bytes, or of a text's."""
    return hmac.new(key, msg.encode() if isinstance(msg, str) else msg, hashlib.sha256).digest()


def check_digest(key: bytes, message: Any, digest: bytes) -> bool:
    """Whether the digest is that of the message with this key; takes the same time either way."""
    return hmac.compare_digest(compute_digest(key, message), digest)
