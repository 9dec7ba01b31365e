"""Runs migrations on the connection that `schema.py` hands over."""

from alembic import context

from services.registry.adapters.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
