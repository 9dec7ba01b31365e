"""The language model engine beside other servers: the same file, the same client, every answer checked."""
