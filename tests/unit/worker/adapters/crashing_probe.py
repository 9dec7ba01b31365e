"""A probe process that aborts while it loads, as a fault in native code would make it."""

import os

if __name__ == "__main__":
    os.write(1, b'{"stage": "loading"}\n')
    os.abort()
