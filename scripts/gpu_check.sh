#!/usr/bin/env bash
# For whoever has an NVIDIA GPU: builds lucebox with its CUDA kernels, runs the GPU tests and `selftest` there, sanitizers and timings on
# request, and prints what docs/gpu_results.md keeps.
#
#   scripts/gpu_check.sh [--sanitize] [--bench] [--no-server]
#
# Needs nvcc ≥ 12.8, CMake ≥ 3.24, a C++ compiler, and a python3 with numpy, pybind11, pytest, tokenizers, jinja2, typer and rich; for the
# server also starlette, uvicorn, pydantic, prometheus_client, llguidance and httpx.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitize= bench= server=1
for option in "$@"; do
    case $option in
        --sanitize) sanitize=1 ;;
        --bench) bench=1 ;;
        --no-server) server= ;;
        *) echo "unknown option $option; known are --sanitize, --bench and --no-server" >&2; exit 2 ;;
    esac
done

build=${LUCEBOX_BUILD:-build/gpu}
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
echo "== $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), sm_$arch, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DLUCEBOX_HIP_ARCHITECTURES=none -DLUCEBOX_CUDA_ARCHITECTURES="$arch" \
    -DPython_EXECUTABLE="$(command -v python3)" -Dpybind11_DIR="$(python3 -m pybind11 --cmakedir)" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" -j "$(nproc)" >>"$build.log" 2>&1 || { tail -40 "$build.log"; exit 1; }

site=$build/site/lucebox
rm -rf "$build/site" && mkdir -p "$site"
cp -r python/lucebox/. "$site/"
cp "$build"/csrc/bindings/_core*.so "$site/"
cp -r "$build/kernels" "$site/kernels"
export PYTHONPATH=$PWD/$build/site:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}

echo "== tests on cuda:0"
LUCEBOX_TEST_DEVICE=cuda:0 python3 -m pytest -q -p no:cacheprovider tests/csrc/hip tests/csrc/engine/test_speculate.py -k "not emulator and not driver and not isa"
echo "== selftest"
python3 -m lucebox selftest --device cuda:0
if [ -n "$server" ]; then
    for clients in 1 4 8; do
        echo "== server, $clients clients: each answer against its solo run"
        python3 scripts/serve_load.py --seconds 10 --clients "$clients" -- --device cuda:0 --draft nano --slots 8
    done
fi
if [ -n "$sanitize" ]; then
    for tool in memcheck racecheck initcheck; do
        echo "== compute-sanitizer $tool, nano with its drafter"
        compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 5 \
            python3 -m lucebox generate "def fibonacci(n):" --draft nano --device cuda:0 --launch direct --max-tokens 8 --max-ctx 256 2>&1 | tail -6
    done
fi
if [ -n "$bench" ]; then
    echo "== bench"
    python3 benches/bench_gpu.py --device cuda:0
fi
