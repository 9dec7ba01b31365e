"""Runs migrations on the connection that `database.py` hands over."""

from alembic import context

from services.metering.adapters.database import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
