"""The contents of the Manifold Parzen paper, and where they are reproduced."""

from papers.contents import Entry

_MP = "test_manifold_parzen.py::"
_OWN = "test_papers_manifold_parzen.py::"

CONTENTS = [
    Entry("sec. 1, Figure 1", "the holes of nearest neighbours", test=_OWN + "test_the_holes_are_counted_against_the_straight_line", experiment="figure_1", claims=("leave holes", "leave fewer", "err less")),
    Entry("sec. 1", "a kernel of fixed shape is a spherical one on normalised data", "_density/parzen.py", _OWN + "test_a_kernel_of_fixed_shape_is_a_round_one_on_normalised_rows"),
    Entry("Eqs. 1 and 2", "a mixture of Gaussians with a covariance of its own for each row", "_mixtures/frame_mixture.py", _MP + "test_log_density_equals_the_papers_formula"),
    Entry("sec. 2, Eq. 3", "the soft neighbourhood: a weighted covariance", "_scatter.py", _MP + "test_soft_neighbourhood_equals_the_weighted_covariance", "section_2", claims=("a soft neighbourhood",)),
    Entry("sec. 2", "a uniform kernel gives the global covariance", "_scatter.py", _OWN + "test_a_uniform_soft_neighbourhood_is_the_global_covariance",
          note="about the row instead of the mean"),
    Entry("sec. 2", "the hard neighbourhood of the k nearest", "_local/manifold_parzen.py", _MP + "test_frames_are_orthonormal_and_carry_the_local_scatter",
          note="exactly k; docs/departures.md"),
    Entry("sec. 2", "neighbourhoods by some metric", "_local/manifold_parzen.py", _MP + "test_a_metric_decides_who_is_near"),
    Entry("sec. 2", "the noise that makes a covariance invertible", "_local/manifold_parzen.py", _MP + "test_duplicates_and_rank_deficiency_are_finite"),
    Entry("sec. 2", "d directions: time and storage about d times those of Parzen windows", experiment="section_2", claims=("the computational cost", "so is storage")),
    Entry("sec. 2", "d = 0 is the traditional Parzen windows estimator", "_local/manifold_parzen.py", _MP + "test_no_components_is_plain_parzen_to_the_last_bit"),
    Entry("Algorithm LocalGaussian", "the density of one kernel", "papers/manifold_parzen/section_2.py", _OWN + "test_streamed_densities_are_those_of_the_estimator"),
    Entry("Algorithm MParzen::Train", "directions by a singular value decomposition", "_scatter.py", _MP + "test_wide_rows_take_the_gram_route_and_still_equal_the_formula"),
    Entry("Algorithm MParzen::Test", "the mean over the kernels", "papers/manifold_parzen/_streamed.py", _OWN + "test_streamed_densities_are_those_of_the_estimator"),
    Entry("sec. 3", "tangent distances", note="prior knowledge that is not built in: a metric that contains it can be passed as `metric`; docs/departures.md"),
    Entry("sec. 3", "mixtures of a few pancakes, local linear embedding, adaptive kernels", note="related work without a claim to check"),
    Entry("sec. 4", "ANLL", "quality.py", "test_quality.py"),
    Entry("sec. 4.1", "the spiral", "_datasets/toy_sets.py", "test_datasets.py", "table_1"),
    Entry("Table 1", "the density of the spiral", test=_MP + "test_the_papers_order_on_the_spiral", experiment="table_1", claims=("MParzen beats", "d=1, the true", "more consistent")),
    Entry("sec. 4.1, four points", "both beat Parzen; its width; the noise for one and for two directions",
          test=_OWN + "test_all_that_the_paper_says_of_the_spiral_is_asked", experiment="table_1", claims=("MParzen beats", "more consistent", "much larger", "close to the true", "close to 0")),
    Entry("Figure 2", "the density above one", experiment="table_1", note="the picture"),
    Entry("sec. 4.2, Table 2", 'the density of images of a "2"', test=_OWN + "test_twos_of_mnist", experiment="table_2", claims=('extremely large', "paper's number")),
    Entry("sec. 4.3", "Bayes' rule with a density for each class; ANCLL", "_detect/classifier.py", _OWN + "test_scores_by_the_definition", "tables_3_4", claims=("on the test rows",)),
    Entry("Table 3", "errors on USPS", test=_OWN + "test_the_published_parameters_stand_beside_both_published_errors", experiment="tables_3_4", claims=("errs", "test errors are")),
    Entry("Table 4", "conditional log-likelihoods on USPS", test=_OWN + "test_a_grid_that_ends_at_its_best_value_is_told", experiment="tables_3_4", claims=("ANCLL",)),
    Entry("sec. 5", "state of the art without prior knowledge: as good as SVMs", experiment="tables_3_4", claims=("than an SVM",)),
    Entry("sec. 5", "weighted covariances, as future work", experiment="section_2", claims=("a soft neighbourhood",)),
    Entry("sec. 5", "tangent directions, as future work", note="not built in; docs/departures.md"),
]  # fmt: skip
