"""The implementation of the `vicinal` command.

`errors` and `console` import nothing heavy; `tables`, `columns` and `outputs` read and write files; there is one module per
command. These modules are imported only after the command line has been parsed.
"""
