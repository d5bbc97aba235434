"""Parzen windows, the methods of estimators whose density is a mixture, and meta-estimators for any density.

::

      ParzenWindows, parzen.py
          loo_bandwidth.py        the bandwidth of maximum leave-one-out likelihood
          gaps.py                 fits to rows with missing values, also for LCA and LCA-Gauss

      methods of every density whose components are a mixture
          mixture_density.py      score_samples, sample, marginal, conditional, ...
          rows_left_out.py        the placeholder for rows that were not saved

      estimators for any density, each with the parameter `density` (validated in density_input.py)
          DensityClassifier, classifier.py
          ParzenMeanShift, parzen_mean_shift.py; its steps are in mode_seeking.py
          DensityOutlierDetector, outliers.py
              groups.py              groups of outliers in the training rows
              robust_scores.py       scores of training rows that do not depend on outliers among them
              outlier_threshold.py   ranks and flags           training_rows.py   scores of the training rows
              explanation.py         which columns are unusual given the others; held_out_rows.py for training rows
              numbers.py             numbers as their table shows them
              incomplete.py          rows with missing values  scored_table.py    scores, flags and reasons as a table

      steps.py    a density behind other steps of a pipeline: rows as it takes them, scores in the units of the table

      parts that Manifold Parzen and Local LCA share
          neighbors.py  noise_choice.py  selection.py
"""
