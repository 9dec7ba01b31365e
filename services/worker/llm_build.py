"""Writes the graph of one language model: `python -m services.worker.llm_build`.

On stdin comes an order (`llm/adapters/graph_child.py`), on stdout go lines (`adapters/trial_process.py`), the last one
`{"written": true}` or `{"error": …}`.
"""

import sys

from services.worker.adapters.trial_process import Lines, bound
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.graph_child import BuildOrder
from services.worker.llm.adapters.graph_files import write_graph


def main() -> None:
    """Read the order, write, tell."""
    lines = Lines.on_stdout()
    order = BuildOrder.from_json(sys.stdin.buffer.read())
    bound(order.bounds.seconds, order.bounds.memory_bytes)
    lines.write({"stage": "writing its graph"})
    try:
        write_graph(order.place, order.folder, order.target, exact=order.exact)
    except LoadError as error:
        lines.write({"error": str(error)})
    except MemoryError:
        lines.write(
            {"error": f"it needs more than the {order.bounds.memory_bytes} bytes it may have"}
        )
    else:
        lines.write({"written": True})


if __name__ == "__main__":
    main()
