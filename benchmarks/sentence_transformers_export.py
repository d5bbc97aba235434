"""Check an adapter in a model of sentence-transformers: vectors and neighbours are the same after saving and loading.

    pip install 'vicinal[sentence-transformers]'
    python benchmarks/sentence_transformers_export.py

The script needs no network: the model is a table of random word vectors.
"""

import tempfile

import numpy as np
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from tokenizers import Tokenizer, models, pre_tokenizers

from vicinal import RCA, io, retrieval

try:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
except ImportError:
    from sentence_transformers.models import StaticEmbedding


def main() -> None:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(500)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = rng.normal(size=(501, 64)).astype(np.float32)
    plain = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device="cpu")
    texts = [" ".join(rng.choice(words, 6)) for _ in range(300)]
    X = plain.encode(texts)
    adapter = make_pipeline(Normalizer(), RCA(32), Normalizer()).fit(X, np.arange(300) // 2)
    adapted = SentenceTransformer(modules=[*plain, *io.to_sentence_transformers(adapter)], device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        adapted.save(folder)
        loaded = SentenceTransformer(folder, device="cpu")
        Z = loaded.encode(texts)
    expected = adapter.transform(X)
    same = retrieval.search(None, Z, 10).indices == retrieval.search(None, X, 10, model=adapter).indices
    print(f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}")
    print("modules of the loaded model:", ", ".join(type(module).__name__ for module in loaded))
    print(f"largest difference of a vector from the adapter's own: {np.abs(Z - expected).max():.1e}")
    print(f"neighbours that agree, 10 of each of 300 texts: {100 * same.mean():.2f} %")


if __name__ == "__main__":
    main()
