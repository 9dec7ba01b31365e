#!/bin/sh
# Loads the demo's models and endpoints into a cluster: two versions of `digits`, `minilm`, the language model `smollm2`.
# May be run again: what is there already stays as it is. Stays when it has done so, for its health says that all is served:
# who waits for all to be healthy waits for that too.
set -eu
served() {
  echo "demo: its models are served"
  touch /tmp/served
  exec sleep infinity
}
models=/opt/inferplane/models
INFERPLANE_API_KEY=$(cat "$INFERPLANE_ADMIN_KEY_FILE")
export INFERPLANE_API_KEY

if inferplane endpoints get smollm2 >/dev/null 2>&1; then
  served
fi
inferplane models push digits@1 $models/digits-1.onnx
inferplane models push digits@2 $models/digits-2.onnx
inferplane models push minilm@1 $models/minilm.onnx --settings $models/minilm.yaml
inferplane models push smollm2@1 $models/smollm2.gguf --no-accuracy
inferplane deploy digits@1
inferplane deploy digits@2 --weight 10
inferplane deploy minilm@1
inferplane deploy smollm2@1
served
