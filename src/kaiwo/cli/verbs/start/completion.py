"""`kaiwo completion`: the script that makes the shell complete verbs, options and names."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that makes your shell complete verbs, options and the names of workloads, queues and nodes.

    \b
    Examples:
      source <(kaiwo completion bash)                              now, or in ~/.bashrc
      source <(kaiwo completion zsh)                               now, or in ~/.zshrc
      kaiwo completion fish > ~/.config/fish/completions/kaiwo.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert found is not None  # the choice above is the list of what click knows
    # Not `source()`: that first runs the shell to ask its version, and this may be printed on another machine.
    made = found(root, {}, "kaiwo", "_KAIWO_COMPLETE")
    click.echo(made.source_template % made.source_vars())
