"""minitransformer --print-completion: complete all commands, their options and values in a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from cli.command import run_command
from cli.entry import COMMANDS
from cli.options import Option, options_in
from minitransformer.config import ConfigError

# "words" has the words of the line before the current word; a hyphenated command counts as two words.
BASH = """\
_minitransformer() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" options="" values=""
    local words="${{COMP_WORDS[*]:1:$((COMP_CWORD-1))}} " name="${{COMP_WORDS[0]##*/}}"
    case "$name" in minitransformer-*) words="${{name#minitransformer-}} $words" ;; esac
    case "$words" in
{commands}
    *) values="{names}" ;;
    esac
    case "$current" in -*) values="$options" ;; esac
    COMPREPLY=($(compgen -W "$values" -- "$current"))
}}
complete -o default -F _minitransformer minitransformer {hyphenated}
"""
BASH_IN_ZSH = """\
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""


def main() -> int:
    """Print the completion script of the shell that the command line names."""
    return run_command(print_completion)


def print_completion() -> None:
    """Print the script.  Raises: ConfigError if the argument is no shell."""
    shells: dict[str, Callable[[], str]] = {"bash": bash, "zsh": lambda: BASH_IN_ZSH + bash(), "fish": fish}
    shell = sys.argv[1] if len(sys.argv) > 1 else None
    if shell not in shells:
        raise ConfigError(f"--print-completion: name the shell after it: {', '.join(shells)}")
    print(shells[shell](), end="")


def kinds_of(command: str) -> Mapping[str, type]:
    """Return the dataclass of options of each kind of a command; {} if the command has no kinds."""
    kinds: Mapping[str, type] = getattr(import_module(f"{__package__}.{command}"), "KINDS", {})
    return kinds


def options_of_commands() -> dict[str, type]:
    """Return the dataclass of options of each command, or of each kind of a command, such as "score bleu"."""
    found: dict[str, type] = {}
    for name in COMMANDS:
        if kinds := kinds_of(name):
            found |= {f"{name} {kind}": options for kind, options in kinds.items()}
        else:
            found[name] = getattr(import_module(f"{__package__}.{name}"), f"{name.title()}Options")
    return found


def _options_by_name(kind: type) -> dict[str, Option | None]:
    """Return the options by their names; None for options that every command has."""
    return {name: option for option in options_in(kind) for name in option.names} | {"--debug": None, "--help": None}


def bash() -> str:
    """Return the script for bash."""
    commands = []
    for command, kind in options_of_commands().items():
        options = _options_by_name(kind)
        commands.append(f'    "{command} "*) options="{" ".join(options)}"')
        for name, option in options.items():
            if option and option.choices:
                commands.append(f'        case "$previous" in {name}) values="{" ".join(option.choices)}" ;; esac')
        commands.append("        ;;")
    commands += [f'    "{name} "*) values="{" ".join(kinds)}" ;;' for name in COMMANDS if (kinds := kinds_of(name))]
    hyphenated = " ".join(f"minitransformer-{name}" for name in COMMANDS)
    return BASH.format(commands="\n".join(commands), names=" ".join(COMMANDS), hyphenated=hyphenated)


def fish() -> str:
    """Return the script for fish."""
    line, seen = "complete -c minitransformer", "__fish_seen_subcommand_from"
    lines = [f"{line} -f -n __fish_use_subcommand -a '{' '.join(COMMANDS)}'"]
    for name in COMMANDS:
        lines.append(f"{line}-{name} -w 'minitransformer {name}'")
        if kinds := " ".join(kinds_of(name)):
            lines.append(f"{line} -f -n '{seen} {name}; and not {seen} {kinds}' -a '{kinds}'")
    for command, kind in options_of_commands().items():
        condition = "; and ".join(f"{seen} {word}" for word in command.split())
        for name, option in _options_by_name(kind).items():
            takes_value = option is not None and option.types != (bool,)
            value = (" -r" if option.may_be_file or not option.choices else " -x") if option and takes_value else ""
            value += f" -a '{' '.join(option.choices)}'" if option and option.choices else ""
            lines.append(f"{line} -n '{condition}' -l {name.removeprefix('--')}{value}")
    return "\n".join(lines) + "\n"
