"""Cross-validated comparison of metrics and densities: did it help?"""
