#!/usr/bin/env bash
# Builds the peer that the benches compare with: llama.cpp of the llama-cpp-python sdist, natively tuned, once, into a cache.
# Run it by hand before benches/bench_peer.py; CI never does. Prints the folder that holds llama-bench.
set -euo pipefail
version=0.3.36
cache=${LUCEBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lucebox}/llama-cpp-$version
jobs=${JOBS:-$(nproc)}

if [ ! -x "$cache/bin/llama-bench" ]; then
    mkdir -p "$cache"
    cd "$cache"
    ls llama_cpp_python-$version.tar.gz >/dev/null 2>&1 ||
        python3 -m pip download --no-deps --no-binary=:all: -d . "llama-cpp-python==$version" >&2
    tar xzf llama_cpp_python-$version.tar.gz
    cmake -S llama_cpp_python-$version/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DBUILD_SHARED_LIBS=OFF >&2
    cmake --build build -j "$jobs" --target llama-bench llama-server llama-quantize llama-completion >&2
    mkdir -p bin
    cp build/bin/llama-* bin/
fi
echo "$cache/bin"
