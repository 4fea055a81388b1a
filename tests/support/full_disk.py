"""A full disk: the kernel lets no file of this process grow beyond a size, until it is told otherwise."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(at_bytes: int) -> Iterator[None]:
    """Writes beyond `at_bytes` of a file stop there, and then fail (EFBIG), as they do with ENOSPC on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
