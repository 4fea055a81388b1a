"""What an embedder's answer must be before anything is done with it."""

import numpy as np
import numpy.typing as npt

from actors.ports.errors import NotFinite, VectorsRefused, WrongCount, WrongDimension, ZeroVector

_ZERO = 1e-12


def checked(vectors: npt.ArrayLike, count: int, dimension: int | None) -> npt.NDArray[np.float32]:
    """`vectors` as float32 `(count, dimension)`, each of Euclidean length 1.

    Raises:
        WrongCount: not one vector for each text.
        WrongDimension: another length than `dimension`, or than each other's.
        NotFinite: a NaN or an infinity.
        ZeroVector: a vector without a direction.
        VectorsRefused: no numbers at all.
    """
    try:
        rows = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):
            raise WrongDimension("the vectors differ in length", found=0, wanted=dimension) from error
        raise VectorsRefused(f"the answer is no array of numbers: {error}") from error
    if rows.ndim != 2 or len(rows) != count:
        raise WrongCount(f"{count} texts gave an answer of shape {rows.shape}; one vector a text is needed")
    if rows.shape[1] == 0 or (dimension is not None and count and rows.shape[1] != dimension):
        raise WrongDimension(
            f"vectors of {rows.shape[1]} dimensions, {dimension} expected: another model answers",
            found=rows.shape[1],
            wanted=dimension,
        )
    if not np.isfinite(rows).all():
        raise NotFinite(f"{int((~np.isfinite(rows)).any(axis=1).sum())} of {count} vectors hold NaN or infinity")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if (lengths < _ZERO).any():
        raise ZeroVector(f"{int((lengths < _ZERO).sum())} of {count} vectors are zero")
    return np.ascontiguousarray(rows / lengths, dtype=np.float32)
