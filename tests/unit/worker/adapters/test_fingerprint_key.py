"""The secret of fingerprints is made once, for its owner alone, and equal for all."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.worker.adapters.fingerprint_key import secret_of


def test_all_workers_of_a_machine_have_the_same(tmp_path: Path) -> None:
    """Also those that start at once."""
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secret_of("", tmp_path / "state"), range(8)))
    assert len(found) == 1
    (path,) = (tmp_path / "state").iterdir()
    assert path.read_bytes() in found
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_setting_counts_more(tmp_path: Path) -> None:
    """Machines that share it have equal ones, and no file is made."""
    found = secret_of("of all machines", tmp_path)
    assert found == secret_of("of all machines", tmp_path / "another")
    assert found != secret_of("of others", tmp_path)
    assert list(tmp_path.iterdir()) == []
