"""A plan in the making."""

from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.step_plan import Draft
from services.worker.llm.drivers.engine_parts import scheduler_of
from tests.unit.worker.llm.scripted_runner import capacity
from tests.unit.worker.llm.stepping import asked


def test_who_gives_up_its_place_gives_back_its_tokens() -> None:
    """To the budget, and to what its tenant is charged; without a place there is nothing to give."""
    (text,) = scheduler_of(capacity(), EngineSettings()).add(asked(b"hello"))
    draft = Draft(8)
    draft.add(text, 3)
    assert (draft.left, text.share.served) == (5, 3.0)
    draft.drop(text)
    draft.drop(text)
    assert (draft.left, text.share.served) == (8, 0.0)
    assert draft.finished() is None
