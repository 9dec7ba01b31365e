# The policy of a worker's token: it registers itself, and renews its check. Whoever has it can register a worker
# under any name, so it is as much as being one.
service "inferplane-worker" {
  policy = "write"
}
