"""Records that functions and estimators return, and the warnings of vicinal: for annotations and for filters.

- `Comparison` and `Report` are returned by :func:`vicinal.compare` and :func:`vicinal.report`.
- `ChunkletReport` is the attribute ``chunklet_report_`` of estimators that learn from groups; `ChunkletRows` holds groups that may
  share rows.
- `Explanation` is returned by :meth:`vicinal.DensityOutlierDetector.explain`.
- `TrainingRowsWarning` is issued by :meth:`vicinal.DensityOutlierDetector.score_samples` for rows of the training table.
"""

from vicinal._compare.results import Comparison
from vicinal._detect.explanation import Explanation
from vicinal._detect.outliers import TrainingRowsWarning
from vicinal._report import Report
from vicinal._supervision import ChunkletReport, ChunkletRows

__all__ = ["ChunkletReport", "ChunkletRows", "Comparison", "Explanation", "Report", "TrainingRowsWarning"]


def __dir__() -> list[str]:
    return sorted(__all__)
