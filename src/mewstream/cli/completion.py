"""``mewstream completion``: let a shell complete commands, options, streams and participants."""

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
    """Print the script that makes SHELL complete what you type.

    Names of streams and participants are asked of the gateway, if --as or MEW_PARTICIPANT says who you are.

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
