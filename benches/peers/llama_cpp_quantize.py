"""Quantizes one GGUF file with llama.cpp's C interface, as llama-quantize does, and prints one JSON object.

    python llama_cpp_quantize.py IN.gguf OUT.gguf TYPE THREADS     seconds, and what the interpreter held before

llama.cpp logs to standard error.
"""

import ctypes
import json
import sys
import time

import llama_cpp as lib
from llama_cpp_bench import anonymous_kb


def main():
    source, target, kind, n_threads = sys.argv[1:]
    params = lib.llama_model_quantize_default_params()
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.nthread = int(n_threads)
    interpreter_kb = anonymous_kb()
    start = time.perf_counter()
    if lib.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp could not quantize {source} to {kind}")
    print(json.dumps({"seconds": time.perf_counter() - start, "interpreter_kb": interpreter_kb}))


if __name__ == "__main__":
    main()
