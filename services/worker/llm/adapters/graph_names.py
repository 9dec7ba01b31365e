"""What graphs' files, domains, inputs and outputs are called: all that writers and runners have in common."""

GRAPH_FILE = "graph.onnx"
WEIGHTS_FILE = "weights.bin"

RUNTIME_DOMAIN = "com.microsoft"
OWN_DOMAIN = "inferplane.llm"

# Of all targets.
IDS = "ids"
ROWS = "rows"
LOGITS = "logits"

# Of flat tokens in blocks.
STARTS = "starts"
PAST = "past"
BLOCKS = "blocks"
CACHE = "kv"  # of our own operators
BLOCK_SIZE = 16  # of our own operators, tokens

# Of the runtime's own operators on GPUs, which take blocks of 256 tokens in all of their versions.
CUDA_BLOCK_SIZE = 256
LONGEST = "longest"  # of all requests: new tokens, and tokens after the step

# Of slots.
LAST_PLACES = "last_places"  # per request: its tokens in the cache after the step, less one
MOST_TOKENS = "most_tokens"  # of a request after the step, or more
LENGTHS = "lengths"  # per request: its tokens in this step; 0: it idles


def cache_names(layer: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Input and output of a layer's keys, then of its values: each pair is the same memory."""
    return (
        (f"past_keys{layer}", f"keys{layer}"),
        (f"past_values{layer}", f"values{layer}"),
    )
