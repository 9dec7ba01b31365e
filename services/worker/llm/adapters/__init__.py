"""Model files, graphs, runtimes, tokenizers and templates."""
