"""Scorers that a setting names; ours says what its package says, computed by ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from services.worker.adapters.scorers import ScorerError, scorer_of
from services.worker.ports.scorer import Scorer, Scores

OFFENSIVE = (
    "You are a stupid idiot, go to hell",
    "shut up you worthless bitch",
    "What the fuck is wrong with you, moron?",
    "I hate you, you disgusting pig. Kill yourself.",
    "This is bullshit, asshole",
)
HARMLESS = (
    "What a lovely day, let's have tea in the garden",
    "Please summarise this report on the economy of Norway.",
    "Write a poem about the sea and the stars.",
    "How do I sort a list of numbers in Python?",
    "My neighbour's cat had four kittens last week.",
)
ODD = (
    "",
    "  \n",
    "the and of",
    "Die Straße ist naß ÄÖÜ",
    "don't-do_this 42 x",
    "迷惑",
    "A" * 10000,
)


class Shouting:
    """A scorer of somebody else's."""

    labels = ("loud",)

    def score(self, texts: Sequence[str]) -> Sequence[Scores]:
        return [{"loud": float(text.isupper())} for text in texts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scorers")


@pytest.fixture(scope="module")
def offence(folder: Path) -> Scorer:
    scorer = scorer_of("offence", folder)
    assert scorer is not None
    return scorer


def test_offensive_texts_score_higher_than_harmless_ones(offence: Scorer) -> None:
    """Each of them than each of the others, with room between."""
    bad = [of["offensive"] for of in offence.score(OFFENSIVE)]
    good = [of["offensive"] for of in offence.score(HARMLESS)]
    assert min(bad) > 0.8
    assert max(good) < 0.2


def test_scores_are_those_of_the_package(offence: Scorer) -> None:
    """The graph and our cutting into words change nothing."""
    profanity_check = pytest.importorskip("profanity_check")
    texts = (*OFFENSIVE, *HARMLESS, *(text for text in ODD if text.strip()))
    expected = profanity_check.predict_prob(texts)
    found = [of["offensive"] for of in offence.score(texts)]
    assert found == pytest.approx(list(expected), abs=1e-5)


def test_scores_are_between_0_and_1(offence: Scorer) -> None:
    """Whatever the text; of no text, 0."""
    for of in offence.score([text * 50 for text in (*ODD, *OFFENSIVE, *HARMLESS)]):
        assert 0.0 <= of["offensive"] <= 1.0
    assert offence.score(["", " "]) == [{"offensive": 0.0}] * 2
    assert offence.score([]) == []


def test_files_are_made_once(offence: Scorer, folder: Path) -> None:
    """A worker that starts later finds them."""
    (files,) = folder.iterdir()
    made = files.stat().st_mtime_ns
    again = scorer_of("offence", folder)
    assert files.stat().st_mtime_ns == made
    assert again is not None
    assert again.score(OFFENSIVE) == offence.score(OFFENSIVE)


def test_anybodys_scorer_is_named_by_its_factory(tmp_path: Path) -> None:
    """A module and what to call in it."""
    scorer = scorer_of(f"{__name__}:Shouting", tmp_path)
    assert scorer is not None
    assert scorer.score(["A", "a"]) == [{"loud": 1.0}, {"loud": 0.0}]
    assert scorer_of("none", tmp_path) is None


@pytest.mark.parametrize("setting", ["", "offense", "nowhere.at.all:make", "json:nothing", "json:"])
def test_what_names_nothing_is_refused(setting: str, tmp_path: Path) -> None:
    """With the setting and what is allowed."""
    with pytest.raises(ScorerError, match="allowed: none, offence"):
        scorer_of(setting, tmp_path)
