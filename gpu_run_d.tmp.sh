. ./gpu_build.tmp.sh
t() { echo "== $* [$(( $(date +%s) - t0 )) s]"; }
t drafter tests; LUCEBOX_TEST_DEVICE=cuda:0 timeout 120 python3 -m pytest -q -p no:cacheprovider tests/csrc/hip/test_drafter.py 2>&1 | tail -15
t selftest; timeout 100 python3 -m lucebox selftest --device cuda:0 2>&1 | tail -6
t speculation; timeout 100 python3 scripts/check_speculation.py --device cuda:0 --prompts 7 --tokens 32 2>&1 | tail
timeout 60 python3 -m lucebox generate "def fibonacci(n):" --device cuda:0 --draft nano --max-tokens 100 2>&1 | tail -1
t drafts bench; timeout 200 python3 benches/bench_gpu_drafts.py 2>&1 | tail -40
t server; for c in 1 4 8; do timeout 40 python3 scripts/serve_load.py --seconds 8 --clients $c -- --device cuda:0 --draft nano --slots 8 2>&1 | tail -4; done
t end
