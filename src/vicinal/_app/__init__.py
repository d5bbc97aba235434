"""The implementation of the `vicinal` command.

::

      vicinal.cli            parses the command line, then imports and calls the module of one command
          parser.py, adapt_options.py, option_values.py    options and help
          paths.py           no output may be an input or another output
          console.py         messages and progress        errors.py   failures and their exit codes

      commands               learn.py (large_tables.py for tables larger than memory), use.py (transform, score, neighbors),
                             outliers.py, compare.py, report.py, adapt.py, inspect.py, demo.py

      reading                tables.py (text_tables.py for CSV), blocks.py for large tables, vectors.py for embeddings, pairs.py
      columns and models     columns.py prepares a table by `vicinal.tables`; models.py creates, saves and loads models;
                             row_scores.py scores and explains rows; clusters.py starts Dask workers, to
                             which sharing.py gives blocks of a table or parts of its rows
      writing                outputs.py, table_writer.py (block by block), adapt_report.py, reading_code.py (code in reports)

The parser and what it uses, `errors` and `console` import nothing heavy, so that ``--help`` and wrong options are fast. The other
modules are imported only after the command line has been parsed.
"""
