"""Shares of traffic as Envoy takes them: whole numbers with a fixed sum."""

from collections.abc import Sequence

TOTAL = 1_000_000


def weights(shares: Sequence[float]) -> list[int]:
    """Millionths for shares that add up to 1, by largest remainder; a share above 0 gets at least one."""
    exact = [share * TOTAL for share in shares]
    whole = [max(int(part), 1) if part > 0 else 0 for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])
    missing = TOTAL - sum(whole)
    for index in by_remainder[: max(missing, 0)]:
        whole[index] += 1
    if missing < 0:  # the many smallest were lifted to one: the largest gives
        whole[whole.index(max(whole))] += missing
    return whole
