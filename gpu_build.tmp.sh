cp python/lucebox/models/nano/*.gguf .snap/python/lucebox/models/nano/; cd .snap
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site ../.whl/*.whl || exit 9
export PYTHONPATH=/tmp/site PATH=$PATH:/usr/local/cuda/bin
b=/tmp/bs; t0=$(date +%s)
cmake -S . -B $b -G Ninja -DCMAKE_BUILD_TYPE=Release -DLUCEBOX_HIP_ARCHITECTURES=none -DLUCEBOX_CUDA_ARCHITECTURES=90 -DPython_EXECUTABLE=$(command -v python3) -Dpybind11_DIR=$(python3 -m pybind11 --cmakedir) > $OUT/cmake.log 2>&1 || { tail -20 $OUT/cmake.log; exit 1; }
cmake --build $b -j 16 > $OUT/build.log 2>&1 || { grep -E "error|FAILED" -A4 $OUT/build.log | head -60; exit 1; }
echo "built in $(( $(date +%s) - t0 )) s"
rm -rf /tmp/s; mkdir -p /tmp/s && cp -r python/lucebox /tmp/s/ && cp $b/csrc/bindings/_core*.so /tmp/s/lucebox/ && cp -r $b/kernels /tmp/s/lucebox/
export PYTHONPATH=/tmp/s:/tmp/site:$PWD/tests
