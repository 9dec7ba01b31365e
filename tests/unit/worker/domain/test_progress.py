"""When a version's run is taken for stuck; the clock is the test's."""

from services.worker.domain.progress import Progress

PATIENCE = 10.0


def test_an_idle_version_is_never_stuck() -> None:
    """Not before its first run, nor long after its last."""
    progress = Progress()
    assert progress.stuck_for(1000.0, PATIENCE) is None
    progress.end(progress.begin(0.0), 1.0)
    assert progress.stuck_for(1000.0, PATIENCE) is None


def test_a_run_beyond_all_patience_is_stuck_until_it_ends() -> None:
    """Patience itself is not exceeded at its last moment; the end of the run ends it all."""
    progress = Progress()
    run = progress.begin(5.0)
    assert progress.stuck_for(15.0, PATIENCE) is None
    assert progress.stuck_for(15.5, PATIENCE) == 10.5
    progress.end(run, 16.0)
    assert progress.stuck_for(16.0, PATIENCE) is None


def test_a_version_of_long_runs_gets_ten_times_the_longest() -> None:
    """What once took 4 s may take 40."""
    progress = Progress()
    progress.end(progress.begin(0.0), 4.0)
    progress.end(progress.begin(4.0), 5.0)
    progress.begin(100.0)
    assert progress.stuck_for(140.0, PATIENCE) is None
    assert progress.stuck_for(141.0, PATIENCE) == 41.0


def test_one_stuck_run_among_others_is_seen() -> None:
    """Short runs beside it don't hide it."""
    progress = Progress()
    stuck = progress.begin(0.0)
    for now in range(1, 20):
        progress.end(progress.begin(float(now)), now + 0.5)
    assert progress.stuck_for(20.0, PATIENCE) == 20.0
    progress.begin(20.0)
    progress.end(stuck, 21.0)
    assert progress.stuck_for(22.0, PATIENCE) is None
