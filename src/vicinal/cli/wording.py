"""Messages of the library in the words of the command.  Imports nothing heavy.

The library names a parameter as Python does: ``sep=';'``, ``missing='drop'``, or ``drop=`` where no value is meant. The command names
the option of the same name (`in_command`). Options with other names are explained at the end of a message (`name_options`).
"""

import ast
import re

_FLAGS = "no_header"
_OPTIONS = "array|columns|decimal|drop|encoding|format|log|missing|na|sep|target|vector"


def _listed(match: re.Match[str]) -> str:
    """Return a list of names as the command takes it."""
    try:
        return f"--{match[1]} {','.join(ast.literal_eval(match[2]))}"
    except (ValueError, SyntaxError, TypeError):
        return match[0]


_RULES = (
    (r"\bor drop the columns\b", "or --drop the columns"),
    (r"\bna=\[('[^']*'|\"[^\"]*\")\]", r"--na \1"),
    (r"\b(columns|drop|log)=(\[.*?\])", _listed),
    (rf"\b({_FLAGS})=True\b", lambda match: f"--{match[1].replace('_', '-')}"),
    (r"\bcategories='one_hot'", "--one-hot"),
    (r"\btypes=\{(['\"])(.*?)\1: '([^']*)'\}", r"--type \2=\3"),
    (rf"(?<![\w.-])({_OPTIONS})='([\w+-]+|,)'", r"--\1 \2"),
    (rf"(?<![\w.-])({_OPTIONS})=(?=[^\s).,;])", r"--\1 "),
    (rf"(?<![\w.-])({_OPTIONS})=", r"--\1"),
    (rf"^({_OPTIONS}): ", r"--\1: "),
    (r"^types: ", "--type: "),
)


def in_command(text: str) -> str:
    """Return a message of the library with the names of options instead of parameters."""
    for pattern, option in _RULES:
        text = re.sub(pattern, option, text)
    return text


def name_options(message: str, **options: str) -> str:
    """Return a message of the library, which names the parameters of Python, with the options of the command that they are.

    Only the parameters that the message contains as words are explained, unless an option has the same name.
    """
    renamed = {name: option for name, option in options.items() if option != f"--{name}"}
    named = {option: name for name, option in renamed.items() if re.search(rf"(?<![\w'\"]){name}(?![\w'\"])", message)}
    if not named:
        return message
    return f"{message} (In the command: {', '.join(f'{name} is {option}' for option, name in named.items())}.)"
