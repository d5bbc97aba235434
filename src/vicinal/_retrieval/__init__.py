"""Search with embeddings and how good it is; the public names are in `vicinal.retrieval`."""
