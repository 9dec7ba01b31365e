"""The asyncio loops that carry between ports and the domain."""
