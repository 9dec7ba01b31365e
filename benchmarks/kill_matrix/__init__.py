"""Kills processes of a whole mesh while calls run, and compares what was counted with what callers got."""
