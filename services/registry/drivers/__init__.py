"""What the registry does: use cases over ports, on asyncio."""
