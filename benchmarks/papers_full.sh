#!/bin/bash
# Measure all experiments of the papers at full size, in parts, on many cores and a CUDA device, without drawing pictures.
#
#     bash benchmarks/papers_full.sh DATA OUTPUT MINUTES CORES [PYTHON]
#
# Nothing new is started after MINUTES; the same command continues where it ended.  `vicinal papers --full --data DATA -o OUTPUT` then
# draws the pictures and writes the pages.  The most expensive experiments use the GPU; without one they take hours.
data=$1 output=$2 cores=$4 python=${5:-python3}
end=$(($(date +%s) + 60 * ${3%.*}))
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 CUDA_MODULE_LOADING=LAZY

papers() {  # JOBS, then the arguments of `vicinal papers`
    local jobs=$1 left=$(((end - $(date +%s)) / 60))
    shift
    [ "$left" -lt 1 ] && return
    OMP_NUM_THREADS=$jobs "$python" -m vicinal.cli papers "$@" --jobs "$jobs" --full --measure --data "$data" -o "$output" --minutes "$left" -q
}

(papers 2 lca --figure 5 --device cuda) &
(papers 2 mparzen --figure table2 --device cuda; papers 2 lca --figure 4,footnote1 --device cuda) &
papers "$cores" mparzen --figure 1,2,table1,table3,section2
papers "$cores" lca --figure 1,3,algorithm1,section4ica,section5,section7
papers "$cores" rca
papers "$cores" nca
wait
