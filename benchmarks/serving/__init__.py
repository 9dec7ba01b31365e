"""inferplane beside other servers: the same models, the same generator, every answer checked. See README.md."""
