#!/usr/bin/env bash
# Run the campaigns at full size on a machine with 16 cores, in two parts of up to SECONDS each, or with "all" in parallel:
#   bash tests/campaigns/full_size.sh cases|processes|all SECONDS FOLDER [SEED]
# The log of each campaign is written to FOLDER, and the failing cases to failures-PART.tar.gz in it.
set -u
part=$1 seconds=$2 folder=$3 seed=${4:-0} failures=$(mktemp -d)
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

campaign() { # NAME JOBS BLAS-THREADS FURTHER-OPTIONS
  local name=$1 jobs=$2 threads=$3
  shift 3
  OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads MKL_NUM_THREADS=$threads "${PYTHON:-python}" tests/campaigns "$name" \
    --jobs "$jobs" --seconds "$seconds" --seed "$seed" --failures "$failures" "$@" >"$folder/$name.txt" 2>&1 &
}

mkdir -p "$folder"
case $part in
  cases)
    campaign inputs 12 1
    campaign model_files 4 1
    ;;
  processes)
    campaign numbers 3 1
    campaign kills 4 1
    campaign concurrency 4 4
    campaign memory_limits 3 1
    campaign memory_use 4 3
    ;;
  all)
    campaign inputs 8 1
    campaign model_files 3 1
    campaign numbers 1 1
    campaign kills 1 1
    campaign concurrency 2 2
    campaign memory_limits 1 1
    campaign memory_use 2 2
    ;;
  *)
    echo "the part is cases, processes or all, not $part" >&2
    exit 2
    ;;
esac
wait
tar -C "$failures" -czf "$folder/failures-$part.tar.gz" .
tail -n 40 "$folder"/*.txt
