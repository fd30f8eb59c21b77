"""`tiny_llama.py OUT`: write a Llama of two layers with random weights in 8-bit blocks, under half a megabyte.

The model generates nonsense, but the same nonsense on any correct device. Needs the packages gguf and numpy.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

EMBEDDING, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 128, 4, 2, 256, 256
UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1  # token types
Q8_0 = GGMLQuantizationType.Q8_0

tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)]
types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
scores = [0.0] * len(tokens)
for i, word in enumerate([b"\xe2\x96\x81", *(bytes([c]) for c in range(ord("a"), ord("z") + 1))]):
    tokens.append(word)
    types.append(NORMAL)
    scores.append(-float(i))
while len(tokens) % 32:  # a row of a block-quantized matrix has a multiple of 32 elements
    tokens.append(b"zz%d" % len(tokens))
    types.append(NORMAL)
    scores.append(-1000.0)

writer = GGUFWriter(sys.argv[1], "llama")
writer.add_name("tiny")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(EMBEDDING)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(FEED_FORWARD)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(EMBEDDING // HEADS)
writer.add_file_type(0)
writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores(scores)
writer.add_token_types(types)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_unk_token_id(0)
random = np.random.default_rng(0)


def matrix(name: str, *shape: int) -> None:
    values = (random.standard_normal(shape) * 0.08).astype(np.float32)
    writer.add_tensor(f"{name}.weight", quants.quantize(values, Q8_0), raw_dtype=Q8_0)


def ones(name: str, n: int) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(n, np.float32))


matrix("token_embd", len(tokens), EMBEDDING)
ones("output_norm", EMBEDDING)
matrix("output", len(tokens), EMBEDDING)
for layer in range(LAYERS):
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(f"blk.{layer}.{part}", EMBEDDING, EMBEDDING)
    ones(f"blk.{layer}.attn_norm", EMBEDDING)
    ones(f"blk.{layer}.ffn_norm", EMBEDDING)
    matrix(f"blk.{layer}.ffn_gate", FEED_FORWARD, EMBEDDING)
    matrix(f"blk.{layer}.ffn_up", FEED_FORWARD, EMBEDDING)
    matrix(f"blk.{layer}.ffn_down", EMBEDDING, FEED_FORWARD)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
