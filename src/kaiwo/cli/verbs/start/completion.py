"""`kaiwo completion`: print a shell completion script."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes verbs, options and the names of workloads, queues and nodes in your shell.

    \b
    Examples:
      source <(kaiwo completion bash)                              for this shell; add it to ~/.bashrc to keep it
      source <(kaiwo completion zsh)                               for this shell; add it to ~/.zshrc to keep it
      kaiwo completion fish > ~/.config/fish/completions/kaiwo.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert found is not None  # the choices above are the shells that click knows
    # Not `source()`: it runs the shell to check its version, but the script may be for another machine.
    made = found(root, {}, "kaiwo", "_KAIWO_COMPLETE")
    click.echo(made.source_template % made.source_vars())
