"""Perplexity of a text by llama.cpp through its C interface, as llama-perplexity does it, and prints one JSON object.

    python llama_cpp_perplexity.py MODEL TEXT THREADS [CHUNKS]

Contexts of 512 tokens, four at a time in a batch of 2048, logits for the second half of each, as by default. Only the time
in `llama_decode` counts: what llama-perplexity spends on the logits themselves is left out, in llama.cpp's favour.
"""

import ctypes
import json
import sys
import time

import llama_cpp as lib
import numpy as np

N_CTX = 512
N_SEQ = 4
FIRST = N_CTX // 2


def tokenize(vocab, text):
    room = len(text) + 8
    tokens = (ctypes.c_int32 * room)()
    return list(tokens[: lib.llama_tokenize(vocab, text, len(text), tokens, room, True, False)])


def main():
    path, text, n_threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    vocab = lib.llama_model_get_vocab(model)
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = N_CTX * N_SEQ
    params.n_seq_max = N_SEQ
    params.n_threads = params.n_threads_batch = n_threads
    ctx = lib.llama_init_from_model(model, params)

    with open(text, "rb") as file:
        tokens = tokenize(vocab, file.read().removesuffix(b"\n"))
    n_chunks = len(tokens) // N_CTX
    if len(sys.argv) > 4:
        n_chunks = min(n_chunks, int(sys.argv[4]))
    n_vocab = lib.llama_vocab_n_tokens(vocab)
    bos = lib.llama_vocab_bos(vocab) if lib.llama_vocab_get_add_bos(vocab) else None
    batch = lib.llama_batch_init(N_CTX * N_SEQ, 0, 1)
    nll, seconds = [], 0.0
    for start in range(0, n_chunks, N_SEQ):
        chunks = [tokens[c * N_CTX : (c + 1) * N_CTX] for c in range(start, min(start + N_SEQ, n_chunks))]
        batch.n_tokens = len(chunks) * N_CTX
        for i in range(batch.n_tokens):
            seq, pos = divmod(i, N_CTX)
            batch.token[i] = bos if bos is not None and pos == 0 else chunks[seq][pos]
            batch.pos[i] = pos
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = seq
            batch.logits[i] = pos >= FIRST
        lib.llama_memory_clear(lib.llama_get_memory(ctx), True)
        began = time.perf_counter()
        if lib.llama_decode(ctx, batch) != 0:
            sys.exit("llama_decode failed")
        lib.llama_synchronize(ctx)
        seconds += time.perf_counter() - began
        rows = np.ctypeslib.as_array(lib.llama_get_logits(ctx), shape=(len(chunks) * (N_CTX - FIRST), n_vocab))
        for seq, chunk in enumerate(chunks):
            for pos in range(FIRST, N_CTX - 1):
                row = rows[seq * (N_CTX - FIRST) + pos - FIRST].astype(np.float64)
                largest = row.max()
                nll.append(np.log(np.exp(row - largest).sum()) + largest - row[chunk[pos + 1]])
    tokens_per_second = n_chunks * N_CTX / seconds
    print(json.dumps({"ppl": float(np.exp(np.mean(nll))), "n_chunks": n_chunks, "tokens_per_second": tokens_per_second}))


if __name__ == "__main__":
    main()
