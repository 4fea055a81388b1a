"""What `test_full_disk` runs in a mount namespace of its own: fills a tmpfs under a store, and makes room again."""

import subprocess
import sys
from pathlib import Path

import anyio

from actors.store import Store, StoreUnavailable
from actors.store.archive import ask
from actors.store.integrity import check, pages
from tests.support.traffic import exchange


async def fill(directory: Path) -> None:
    url = f"sqlite:///{directory}/evolved.db"
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    ballast = directory / "ballast"
    ballast.write_bytes(b"b" * (1 << 20))
    confirmed: list[str] = []
    refused = ""
    for number in range(4000):
        one = exchange(f"r{number}", 0, response=b"x" * 20_000)
        try:
            await store.save([one])
        except StoreUnavailable as error:
            refused = str(error)
            break
        confirmed.append(one.id)
    assert str(directory) in refused, refused
    assert "full" in refused, refused
    assert len(confirmed) > 20
    assert {call.id for call in await store.open_exchanges()} == set(confirmed)  # it can be read still
    ballast.unlink()
    late = exchange("late", 0)
    await store.save([late])
    assert {call.id for call in await store.open_exchanges()} == {*confirmed, late.id}
    await store.aclose()
    assert pages(url) == []
    assert ask(url, lambda connection: check(connection, None, lambda _: None)).findings == ()
    print(f"sound with {len(confirmed)} confirmed; refused with: {refused}")


if __name__ == "__main__":
    place = Path(sys.argv[1]) / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], check=True)
    anyio.run(fill, place)
