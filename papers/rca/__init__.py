"""The experiments of the RCA papers."""
