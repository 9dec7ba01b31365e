# The policy of the tokens of registry and router: they read which workers there are, and whether their nodes are well.
# Without the right to read a node Consul leaves the node's services out, without a word.
service "inferplane-worker" {
  policy = "read"
}
node_prefix "" {
  policy = "read"
}
