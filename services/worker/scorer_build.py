"""Makes the scorer of offensive texts from its package: `python -m services.worker.scorer_build FOLDER`.

In a process of its own, since the package's model is a pickle, which runs what it names, and brings scikit-learn along.
The folder gets the model as a graph for ONNX Runtime and its words. What cuts texts into words stays Python: the
operators for that need a locale of the system, and see other letters in words than the model was taught with.
"""

import sys
from importlib import resources
from pathlib import Path

import joblib
import onnx
import orjson
import skl2onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.pipeline import make_pipeline

from services.worker.adapters.offence_files import GRAPH, INPUT, OPSETS, WORD, WORDS


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    package = resources.files("profanity_check") / "data"
    with (package / "vectorizer.joblib").open("rb") as file:
        vectorizer = joblib.load(file)
    with (package / "model.joblib").open("rb") as file:
        model = joblib.load(file)
    said = vectorizer.get_params()
    if said["token_pattern"] != f"(?u){WORD}" or not said["lowercase"] or said["strip_accents"]:
        sys.exit(f"the package's model reads words in another way: {said}")
    words = {word: int(place) for word, place in vectorizer.vocabulary_.items()}
    # Without its words the vectorizer is what weighs counts.
    weigher = vectorizer._tfidf
    graph: onnx.ModelProto = skl2onnx.convert_sklearn(
        make_pipeline(weigher, model),
        initial_types=[(INPUT, FloatTensorType([None, len(words)]))],
        options={id(model): {"zipmap": False}},
        target_opset=OPSETS,
    )
    for output in graph.graph.output:  # said to be of one text
        output.type.tensor_type.shape.dim[0].dim_param = "texts"
    (folder / GRAPH).write_bytes(graph.SerializeToString())
    (folder / WORDS).write_bytes(orjson.dumps(words))


if __name__ == "__main__":
    main()
