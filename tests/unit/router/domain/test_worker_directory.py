"""The worker directory, with a clock moved by hand."""

from services.router.domain.topology import Worker
from services.router.domain.worker_directory import WorkerDirectory

A, B = (Worker(name=f"workers/{n}", address=f"{n}:1") for n in "ab")


def test_discoverys_word_is_followed_at_once() -> None:
    """While discovery is there, a worker that it no longer names is gone."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A, B], now=0)
    directory.hear([B], now=1)
    assert directory.live(1) == (B,)


def test_workers_are_kept_while_discovery_is_away() -> None:
    """Nobody is lost because discovery can't be asked, however long."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A], now=0)
    directory.lose()
    assert directory.live(1000) == (A,)
    assert directory.next_change(1000) is None


def test_missing_workers_are_kept_for_one_lease_after_a_reconnect() -> None:
    """1. A and B live. 2. Discovery restarts, knows B only. 3. A stays for 5 s. 4. Then it is gone."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A, B], now=0)
    directory.lose()
    directory.hear([B], now=10)
    assert directory.live(14.9) == (A, B)
    assert directory.next_change(12) == 15
    assert directory.live(15) == (B,)
    assert directory.next_change(15) is None


def test_kept_worker_that_registers_again_is_fresh() -> None:
    """A worker that comes back within the lease has what it says now, and leaves when discovery says so."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A], now=0)
    directory.lose()
    directory.hear([], now=10)
    draining = Worker(name=A.name, address=A.address, draining=True)
    directory.hear([draining], now=11)
    assert directory.live(11) == (draining,)
    directory.hear([], now=12)
    assert directory.live(12) == ()


def test_lost_twice_still_keeps() -> None:
    """A second loss within the lease keeps the doubtful ones for a lease from the second reconnect."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A], now=0)
    directory.lose()
    directory.hear([], now=10)
    directory.lose()
    directory.hear([], now=13)
    assert directory.live(17) == (A,)
    assert directory.live(18) == ()


def test_first_word_needs_no_grace() -> None:
    """Before anything was heard there is nobody to keep."""
    directory = WorkerDirectory(lease=5)
    assert directory.heard_for(7) is None
    directory.lose()
    directory.hear([], now=10)
    assert directory.live(10) == ()
    assert directory.heard_for(12) == 2


def test_kept_worker_goes_when_another_has_its_address() -> None:
    """An address is one process': what was known of the one before must not lead calls to the next."""
    directory = WorkerDirectory(lease=5)
    directory.hear([A, B], now=0)
    directory.lose()
    again = Worker(name="workers/c", address=A.address)
    directory.hear([again], now=10)
    assert directory.live(11) == (B, again)
