"""The four papers."""

# The order of the pages.  The keys are what the command calls the papers.
PAPERS = {
    "lca": ("lca", "Local Component Analysis (Le Roux and Bach, 2012)"),
    "mparzen": ("manifold_parzen", "Manifold Parzen Windows (Vincent and Bengio, 2002)"),
    "rca": ("rca", "Relevant Component Analysis (Bar-Hillel, Hertz, Shental and Weinshall, 2005)"),
    "nca": ("nca", "Neighbourhood Components Analysis (Goldberger, Roweis, Hinton and Salakhutdinov, 2004)"),
}
