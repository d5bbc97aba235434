"""The rooms behind the `vicinal` command.

`errors` and `console` are light; `tables`, `columns` and `outputs` know files; one module a command knows the methods.
Nothing here is imported before the command line has been understood.
"""
