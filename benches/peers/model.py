"""Makes the benchmark's own model: the shape of Qwen3-0.6B with random weights, as F16 and as llama.cpp quantizes it.

    python model.py FOLDER TYPE...      writes FOLDER/qwen3-06b-TYPE.gguf for each TYPE that is not there yet

Speed does not depend on what the weights are, only on their shapes and types, so nothing need be downloaded and two
runs anywhere measure the same work. The vocabulary has Qwen3's size and as many merges, for loading it takes time too.
Needs the packages `gguf`, `numpy` and `llama-cpp-python`.
"""

import os
import sys

import gguf
import numpy as np

N_LAYER, N_EMBD, N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM = 28, 1024, 3072, 16, 8, 128
N_VOCAB, N_MERGES = 151_936, 151_387
TYPES = ("F16", "Q4_K_M", "Q4_0", "Q5_0", "Q8_0", "Q6_K", "IQ4_XS")


def byte_alphabet():
    """The 256 characters by which byte-level BPE writes bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(len(others))]


def vocabulary(rng):
    """Tokens, their types and the merges: every token past the bytes joins two earlier ones; unused ones fill up."""
    tokens, merges = byte_alphabet(), []
    known = set(tokens)
    while len(merges) < N_MERGES:
        for left, right in rng.integers(0, len(tokens), (N_MERGES // 8, 2)):
            joined = tokens[left] + tokens[right]
            if len(joined) <= 12 and joined not in known and len(merges) < N_MERGES:
                known.add(joined)
                tokens.append(joined)
                merges.append(f"{tokens[left]} {tokens[right]}")
    types = [gguf.TokenType.NORMAL] * len(tokens)
    for special in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        tokens.append(special)
        types.append(gguf.TokenType.CONTROL)
    types += [gguf.TokenType.UNUSED] * (N_VOCAB - len(tokens))
    tokens += [f"[PAD{i}]" for i in range(len(tokens), N_VOCAB)]
    return tokens, types, merges


def tensors():
    """Names and shapes (rows last to first, as numpy has them) of all tensors; the output matrix is the embeddings."""
    yield "token_embd.weight", (N_VOCAB, N_EMBD)
    for i in range(N_LAYER):
        for name, shape in {
            "attn_norm": (N_EMBD,),
            "attn_q": (N_HEAD * HEAD_DIM, N_EMBD),
            "attn_k": (N_HEAD_KV * HEAD_DIM, N_EMBD),
            "attn_v": (N_HEAD_KV * HEAD_DIM, N_EMBD),
            "attn_q_norm": (HEAD_DIM,),
            "attn_k_norm": (HEAD_DIM,),
            "attn_output": (N_EMBD, N_HEAD * HEAD_DIM),
            "ffn_norm": (N_EMBD,),
            "ffn_gate": (N_FF, N_EMBD),
            "ffn_up": (N_FF, N_EMBD),
            "ffn_down": (N_EMBD, N_FF),
        }.items():
            yield f"blk.{i}.{name}.weight", shape
    yield "output_norm.weight", (N_EMBD,)


def write_f16(path):
    """Writes the model with normally distributed weights (deviation 0.02, as models are initialised) and unit norms."""
    rng = np.random.default_rng(1)
    tokens, types, merges = vocabulary(rng)
    out = gguf.GGUFWriter(path, "qwen3")
    out.add_name("Random weights in the shape of Qwen3-0.6B")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_context_length(40_960)
    out.add_embedding_length(N_EMBD)
    out.add_block_count(N_LAYER)
    out.add_feed_forward_length(N_FF)
    out.add_head_count(N_HEAD)
    out.add_head_count_kv(N_HEAD_KV)
    out.add_key_length(HEAD_DIM)
    out.add_value_length(HEAD_DIM)
    out.add_rope_freq_base(1e6)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_bos_token_id(tokens.index("<|endoftext|>"))
    out.add_eos_token_id(tokens.index("<|im_end|>"))
    out.add_add_bos_token(False)
    for name, shape in tensors():
        if len(shape) == 1:
            out.add_tensor(name, np.ones(shape, np.float32))
        else:
            weights = rng.standard_normal(shape, np.float32)
            weights *= 0.02
            out.add_tensor(name, weights.astype(np.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def quantize(source, path, kind, n_threads):
    """Quantizes with llama.cpp's own code and recipe, so that every runtime gets the file its users would have."""
    import llama_cpp as lib

    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.nthread = n_threads
    if lib.llama_model_quantize(source.encode(), path.encode(), params) != 0:
        sys.exit(f"model.py: llama.cpp could not quantize {source} to {kind}")


def main():
    folder, kinds = sys.argv[1], sys.argv[2:]
    if unknown := set(kinds) - set(TYPES):
        sys.exit(f"model.py: type {', '.join(sorted(unknown))}: expected of {', '.join(TYPES)}")
    os.makedirs(folder, exist_ok=True)
    n_threads = int(os.environ.get("QUANTIZE_THREADS", "0")) or len(os.sched_getaffinity(0))
    source = os.path.join(folder, "qwen3-06b-F16.gguf")
    for kind in ["F16", *(k for k in kinds if k != "F16")]:
        path = os.path.join(folder, f"qwen3-06b-{kind}.gguf")
        if os.path.exists(path):
            continue
        print(f"model.py: making {path}", file=sys.stderr)
        partial = f"{path}.partial"
        write_f16(partial) if kind == "F16" else quantize(source, partial, kind, n_threads)
        os.rename(partial, path)


if __name__ == "__main__":
    main()
