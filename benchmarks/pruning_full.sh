#!/usr/bin/env bash
# Run all parts of pruning.py at full size, in parallel, on two cores each.  This needs at least 16 cores and takes 9 minutes.
#   bash benchmarks/pruning_full.sh DATA RESULTS [PYTHON_WITH_MLPACK]   (absolute paths)
# DATA holds covertype.npz, mnist.npz, usps.npz and uci_{letter,pendigits,satimage}.npz.  Results are added to the file RESULTS,
# and printed output is written to RESULTS.log.
set -euo pipefail
cd "$(dirname "$0")/.."
export VICINAL_DATA=$1 PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
results=$2 mlpack=${3:-}
on() { # CORES PART OPTIONS...: run a part on these cores
    local cores=$1
    shift
    timeout 530 taskset -c "$cores" python3 benchmarks/pruning.py "$@" --results "$results" >>"$results.log" 2>&1 || echo "$*: exit $?" >>"$results.log"
}
# Compile the kernels first, so that the first pass of no part does.
taskset -c 0,1 python3 benchmarks/pruning.py covertype --most 25000 --results "$(mktemp)" >"$results.log" 2>&1
on 0,1 covertype --limit 450 &
on 2,3 clusters --rows 1000000 --rounds 2 &
(on 4,5 clusters --rows 100000 && on 4,5 gauss --rows 100000) &
on 6,7 real &
on 8,9 least --rows 1000000 &
on 10 trees --rows 100000 --threads 1 &
if [ -n "$mlpack" ]; then
    on 11 mlpack --rows 100000 --columns 2 --mlpack "$mlpack" --limit 200 &
    on 12 mlpack --rows 100000 --columns 5 --mlpack "$mlpack" --limit 200 &
    on 13 mlpack --rows 100000 --columns 8 --mlpack "$mlpack" --limit 200 &
fi
wait
