"""``mewstream completion``: set up completion of commands, options, streams and participants in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mewstream.cli.output import quietly

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
@quietly
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete what you type.

    Names of streams and participants come from the gateway, if --as or MEW_PARTICIPANT says who you are.

    \b
    Examples:
      eval "$(mewstream completion bash)"                # in ~/.bashrc
      eval "$(mewstream completion zsh)"                 # in ~/.zshrc
      mewstream completion fish > ~/.config/fish/completions/mewstream.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root().command
    click.echo(found(root, {}, "mewstream", "_MEWSTREAM_COMPLETE").source())
