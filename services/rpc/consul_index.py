"""The index of a blocking query: where the next question goes on from.

The rules are those of Consul's documentation (HTTP API, blocking queries, implementation details).
"""


def next_index(asked: int, answered: int | None) -> int:
    """What to wait beyond; 0: ask without waiting, since what was known says nothing any more.

    Args:
        asked: what the question waited beyond.
        answered: what came with the answer; None: nothing usable.
    """
    if answered is None or answered <= 0:
        return 0  # waiting beyond it would return at once, again and again
    if answered < asked:
        return 0  # the servers' state was restored or lost: news since then have lower numbers
    return answered
