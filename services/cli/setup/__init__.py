"""What a cluster of containers needs before it starts: certificates and secrets as files."""
