"""Where the spools of a tap are: one for each process that serves."""

from pathlib import Path


def worker_spool(base: str | Path, number: int) -> Path:
    """The spool of worker `number`."""
    return Path(base) / f"worker-{number}"


def spools(base: Path, workers: int) -> list[Path]:
    """Every spool that may hold records: those of the present workers, and those that an earlier number left."""
    present = [worker_spool(base, number) for number in range(workers)] if workers > 1 else []
    left = sorted(path for path in base.glob("worker-*") if path.is_dir() and path not in present)
    return [base, *present, *left]
