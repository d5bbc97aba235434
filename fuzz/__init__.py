"""Programs that search for wrong results and unclear errors with random cases; `harness` describes how to write one."""
