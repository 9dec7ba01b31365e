"""Chat with the demo's `smollm2` endpoint by OpenAI's own client: pip install openai.

The API key comes from INFERPLANE_API_KEY.
"""

import os
import sys

from openai import OpenAI

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080"
client = OpenAI(base_url=f"http://{address}/v1", api_key=os.environ["INFERPLANE_API_KEY"])
pieces = client.chat.completions.create(
    model="smollm2",
    messages=[{"role": "user", "content": "What is 2 plus 2?"}],
    temperature=0,
    stream=True,
)
for piece in pieces:
    print(piece.choices[0].delta.content or "", end="", flush=True)
print()
