"""Local Component Analysis: LCA, LCA-Gauss, Local LCA."""
