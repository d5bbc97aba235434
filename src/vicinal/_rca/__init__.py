"""Relevant Component Analysis and related methods that learn from chunklets.

::

      RCA, rca.py                                          the metric in closed form; its sums are in `vicinal._scatter`
          raw_shrinkage.py                                 shrinkage towards the raw metric, by cross-validation
          on_cluster.py                                    the sums over the partitions of a Dask collection
      OnlineRCA, online_rca.py                             a stream, in which old rows are forgotten
      BinnedTargetMetric, binned_target_metric.py          RCA and others from a numeric target
      MMC, mmc.py                                          the metric of Xing et al. from similar and dissimilar pairs
      ConstrainedKMeans, constrained_kmeans.py             clusters that keep chunklets together
      ConstrainedGaussianMixture, constrained_mixture.py   the same for a Gaussian mixture
          cannot_link.py                                   exact sums over assignments that separate given pairs

`vicinal._supervision` converts labels, groups and pairs to chunklets.
"""
