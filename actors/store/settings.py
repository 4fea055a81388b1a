"""What is set under [database]: which database, and how long its answers are waited for."""

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database."""

    url: str = ""
    """Empty for SQLite in `state_dir`; else sqlite:////absolute/path.db or postgresql+psycopg://USER@HOST:PORT/DATABASE,
    with ?sslmode=verify-full&sslrootcert=FILE for TLS. Several daemons need PostgreSQL."""
    password_file: str = ""
    """File that holds the password of PostgreSQL's user; read anew for every connection: a change needs no restart."""
    connections: Annotated[int, msgspec.Meta(ge=2, le=64)] = 4
    """Connections at most, and questions to the database at once. One of them writes."""
    statement_seconds: Seconds = 60.0
    """How long PostgreSQL works on one statement."""


CONNECT_SECONDS = 5.0
"""How long a connection to PostgreSQL may take."""
LOCK_SECONDS = 20.0
"""How long a writer waits for another one, of this process or of another: the longest transactions take seconds."""
IDLE_SECONDS = 3.0
"""How long PostgreSQL keeps a transaction of a daemon that it hears nothing of: until then all others wait, also the
one that is to lead next."""
DEFAULTS = StoreSettings()
"""For tools and tests, which name a URL alone."""
