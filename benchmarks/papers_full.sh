#!/bin/bash
# All experiments of the papers in full, by parts, on 16 cores and a CUDA device: results only, without pictures.
#
#     bash benchmarks/papers_full.sh DATA OUTPUT MINUTES [PYTHON]
#
# Nothing new is begun after MINUTES; the same command goes on where it was.  `vicinal papers --full --data DATA -o OUTPUT` then
# draws the pictures and writes the pages.  The GPU serves the heaviest experiments; without one they take hours.
data=$1 output=$2 python=${4:-python3}
end=$(($(date +%s) + 60 * $3))
export PYTHONPATH=src PYTHONUNBUFFERED=1

papers() {  # CORES, then the arguments of `vicinal papers`
    local cores=$1 left=$(((end - $(date +%s)) / 60))
    shift
    [ "$left" -lt 1 ] && return
    OMP_NUM_THREADS=$cores "$python" -m vicinal.cli papers "$@" --full --measure --data "$data" -o "$output" --minutes "$left" -q
}

(papers 4 lca --figure 5 --device cuda --jobs 4; papers 4 lca --figure 4,footnote1 --device cuda --jobs 4) &
(papers 5 mparzen --figure table2; papers 5 nca --jobs 5) &
papers 7 lca --figure 3,1,algorithm1,section4ica,section5,section7 --jobs 7
papers 7 mparzen --figure 1,2,table1,table3,section2 --jobs 7
papers 7 rca --jobs 7
wait
papers 16 --jobs 16
