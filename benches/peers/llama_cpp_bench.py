"""Measures llama.cpp on one GGUF file through its C interface, as llama-bench does, and prints one JSON object.

    python llama_cpp_bench.py speed MODEL THREADS N_PROMPT N_GEN N_DEPTH     tokens per second; 0 leaves a part out
    python llama_cpp_bench.py first-token MODEL THREADS                      seconds to the first token

Only the C functions are used, with the interpreter doing nothing between two tokens: the Python class of the package
copies all logits at each step, which is not llama.cpp's doing. Settings are llama.cpp's defaults (weights repacked where
it likes to, flash attention where it can, f16 KV cache, 512 tokens a batch), logits only for the last token of a batch.
llama.cpp logs to standard error.
"""

import ctypes
import json
import random
import sys
import time

import llama_cpp as lib

N_BATCH = 512


def anonymous_kb():
    """This process's resident memory that no file backs: so far, that of the interpreter and its packages."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


class Runtime:
    """A model and its context."""

    def __init__(self, path, n_threads):
        lib.llama_backend_init()
        self.n_threads = n_threads
        self.ctx = None
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)

    def new_context(self, n_ctx):
        """An empty context of `n_ctx` positions in place of the old one."""
        if self.ctx:
            lib.llama_free(self.ctx)
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_threads = params.n_threads_batch = self.n_threads
        self.ctx = lib.llama_init_from_model(self.model, params)
        if not self.ctx:
            sys.exit(f"llama.cpp cannot make a context of {n_ctx} tokens")

    def decode(self, tokens):
        """Evaluates `tokens` at the end of the context, in batches, and waits for the logits of the last."""
        for i in range(0, len(tokens), N_BATCH):
            part = tokens[i : i + N_BATCH]
            array = (ctypes.c_int32 * len(part))(*part)  # the batch only points to it
            if lib.llama_decode(self.ctx, lib.llama_batch_get_one(array, len(part))) != 0:
                sys.exit("llama_decode failed")
        lib.llama_synchronize(self.ctx)

    def clear(self):
        lib.llama_memory_clear(lib.llama_get_memory(self.ctx), True)


def speed(path, n_threads, n_prompt, n_gen, n_depth):
    before = anonymous_kb()
    runtime = Runtime(path, n_threads)
    choose = random.Random(1)
    n_vocab = lib.llama_vocab_n_tokens(runtime.vocab)
    tokens = [choose.randrange(n_vocab) for _ in range(max(n_prompt, n_gen, n_depth))]
    found = {}
    if n_prompt:
        runtime.new_context(n_prompt)
        runtime.decode(tokens[:n_prompt])
        runtime.clear()
        start = time.perf_counter()
        runtime.decode(tokens[:n_prompt])
        found["pp"] = n_prompt / (time.perf_counter() - start)
    if n_gen:
        runtime.new_context(n_depth + n_gen)
        runtime.decode(tokens[:1])
        runtime.clear()
        runtime.decode(tokens[:n_depth])
        start = time.perf_counter()
        for token in tokens[:n_gen]:
            runtime.decode([token])
        found["tg"] = n_gen / (time.perf_counter() - start)
    info = lib.llama_print_system_info().decode()
    return {**found, "interpreter_kb": before, "system_info": info}


def first_token(path, n_threads):
    start = time.perf_counter()
    runtime = Runtime(path, n_threads)
    runtime.new_context(N_BATCH)
    prompt = (ctypes.c_int32 * 8)()
    n_prompt = lib.llama_tokenize(runtime.vocab, b"!", 1, prompt, 8, False, False)
    runtime.decode(prompt[:n_prompt])
    lib.llama_sampler_sample(lib.llama_sampler_init_greedy(), runtime.ctx, -1)
    return {"first_token": time.perf_counter() - start, "n_prompt": n_prompt}


def main():
    what, path, *numbers = sys.argv[1:]
    measure = {"speed": speed, "first-token": first_token}[what]
    print(json.dumps(measure(path, *map(int, numbers))))


if __name__ == "__main__":
    main()
