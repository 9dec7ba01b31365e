"""The asyncio loops that carry the worker's decisions."""
