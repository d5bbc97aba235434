"""The options of a command, generated from its parser, so that the page of the command cannot differ from ``--help``.

``{command-options} learn`` lists the options of its own; with the option ``:group: reading tables``, those of a group that commands share.
"""

import argparse
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

OWN_GROUPS = ("positional arguments", "options")


def options_of(command: str, group: str | None = None) -> list[tuple[str, str]]:
    """Return names and help of the options of a command, or of one of its groups."""
    from vicinal.cli.parser import make_parser

    (commands,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    titles = OWN_GROUPS if group is None else (group,)
    return [
        (_name(action), (action.help or "").replace("%%", "%"))
        for titled in commands.choices[command]._action_groups
        if titled.title in titles
        for action in titled._group_actions
        if action.dest != "help"
    ]


def _name(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    if not action.option_strings:
        return str(value)
    return ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 and value else "")


class CommandOptions(SphinxDirective):
    """A definition list of the options of a command."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"group": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        entries = options_of(self.arguments[0], self.options.get("group"))
        if not entries:
            raise self.error(f"{self.arguments[0]} has no options in {self.options.get('group') or OWN_GROUPS}")
        items = [
            nodes.definition_list_item(
                "", nodes.term("", "", nodes.literal(text=name)), nodes.definition("", nodes.paragraph(text=text))
            )
            for name, text in entries
        ]
        return [nodes.definition_list("", *items)]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True}
