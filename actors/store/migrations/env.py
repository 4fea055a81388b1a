"""What Alembic runs: the migrations, on the connection and in the transaction that `migrate` was given."""

from alembic import context

from actors.store.tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
