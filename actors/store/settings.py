"""How long the database is waited for, and by how many at once."""

CONNECTIONS = 4
"""At most, and questions to the database at once. One of them writes."""
STATEMENT_SECONDS = 60.0
"""How long PostgreSQL works on one statement."""
CONNECT_SECONDS = 5.0
"""How long a connection to PostgreSQL may take."""
LOCK_SECONDS = 20.0
"""How long a writer waits for another one, of this process or of another: the longest transactions take seconds."""
IDLE_SECONDS = 3.0
"""How long PostgreSQL keeps a transaction of a daemon that it hears nothing of: until then all others wait, also the
one that is to lead next."""
