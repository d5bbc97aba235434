"""Campaigns: programs that search for bugs with random cases; `harness` describes how one is written."""
