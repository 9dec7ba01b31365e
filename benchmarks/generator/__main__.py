"""One load in a process of its own: `python -m benchmarks.generator ORDER_FILE RESULT_FILE`."""

import sys
from pathlib import Path

from benchmarks.generator.load import run
from benchmarks.generator.order import Order

if __name__ == "__main__":
    order, result = sys.argv[1:]
    Path(result).write_text(run(Order.of_json(Path(order).read_text())).as_json())
