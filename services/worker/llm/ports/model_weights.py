"""The weights of a language model, read from its files as they are asked for."""

from typing import Protocol

from services.worker.llm.domain.layer_ir import Array, Layer, Linear, ModelPlan, Weights


class ModelWeights(Protocol):
    """An open model; every call reads anew, so that no more than one part need be in memory.

    Each call raises LoadError with the tensor's name if its values can't be computed with.
    """

    @property
    def plan(self) -> ModelPlan:
        """What is known without reading weights."""
        ...

    def embedding(self) -> Weights:
        """[vocabulary_size, hidden_size], not scaled."""
        ...

    def layer(self, index: int) -> Layer:
        """One layer's weights."""
        ...

    def final_norm(self) -> Array:
        """float32 [hidden_size], before the head."""
        ...

    def head(self) -> Linear | None:
        """From hidden_size to vocabulary_size; None: the embedding is the head, too (`shape.tied_embedding`)."""
        ...
