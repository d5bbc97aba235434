"""The tables and figures of the four papers, each reproduced by one command; ``python papers/run.py --help`` explains it.

There is one module per table or figure, in the folder of its paper.  Each is an example of the public API and defines

``TITLE``, ``COVERS``, ``ORDER``
    Its heading, what it shows of the paper (``"figure 3"``, ``"table 1"``), and its place in the paper.
``NEEDS``, ``EXTRAS``
    Data sets that it needs in full mode (in quick mode: ``QUICK_NEEDS``), and packages with their extra.
``MINUTES``
    The approximate number of minutes on one core, in quick and in full mode.
``units(setting)``
    The work as a list of small dicts, each measured and stored separately.
``measure(setting, **unit)``
    One unit: numbers and lists, ready for JSON.
``summarise(setting, records)``
    From ``{**unit, **measured}`` of all units to a `Summary`: tables beside the paper's, claims, remarks.
``draw(setting, records)``
    The pictures: a dict from a short name to a matplotlib figure.

Texts on a page take their numbers from the records or from constants, through f-strings; the docstring of a module, which describes the
set-up, may name constants of the module in braces.  A claim is a sentence of the paper and a rule, stated before the measurement; there are no
reasons in advance why it may fail.  A grid is refined until a step moves the quantity of the verdict by less than its standard error, and extended until
the validation score falls or a stated floor is reached; where a choice is at an end, `at_the_end` says so in the evidence.  Scores are stored for
every value of a grid, or the choice from the whole grid and from either half of it (`best_positions`), and ``summarise`` uses the part that ``setting.grid`` names,
so that ``run.py --check`` can judge again.  ``_contents.py`` of each paper lists the contents of the paper, where they are reproduced, and the claims that
are evidence for them.

::

      run.py              the command
      experiment.py       `Setting`, `Summary`, `Table`, `Claim`, and the experiments of a paper
      results.py, results/  measurements at the sizes of the papers, as JSON
      page.py, contents.py  the page of a paper, and the table of its contents
      drawing.py, arrays.py  parts that several pictures or experiments share
      real_sets.py, real_sets.json, face_pairs.py  the data sets
"""
