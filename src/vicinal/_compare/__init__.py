"""Cross-validated comparison of metrics and densities."""
