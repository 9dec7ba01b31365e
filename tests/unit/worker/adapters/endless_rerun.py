"""A rerun whose first request never ends."""

import time

print('{"begun": 0}', flush=True)
time.sleep(60.0)
