"""Search with embeddings and its evaluation; the public names are in `vicinal.retrieval`."""
