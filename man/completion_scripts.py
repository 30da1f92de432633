"""Completion scripts for bash, zsh and fish: static, so that a tab never starts Python."""

from __future__ import annotations

from collections.abc import Iterator

from command_tree import Command, Parameter

NOTE = "# Written by man/generate.py."


def _words(command: Command, commands: list[Command]) -> list[str]:
    """The words of the commands below a group."""
    return [c.word for c in commands if c.name == f"{command.name} {c.word}"]


def _flags(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def bash(commands: list[Command]) -> str:
    """completions/bash/mqstore."""
    return "\n".join([NOTE, *_bash_lines(commands)]) + "\n"


def _bash_lines(commands: list[Command]) -> Iterator[str]:
    yield "_mqstore() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    local command=mqstore word words= options="
    yield "    COMPREPLY=()  # files, by `-o default`: readline quotes names, and ends directories with a slash"
    yield "    case = in  # readline makes three words of --option=value"
    yield '        "$current") current= ;;'
    yield '        "$previous") previous="${COMP_WORDS[COMP_CWORD-2]}" ;;'
    yield "    esac"
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        case "$command $word" in'
    for command in commands[1:]:
        yield f'            "{command.name}") command="{command.name}" ;;'
    yield '            *" --") return ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command:$previous" in'
    for command in commands:
        for option in command.options:
            if option.takes_value:
                patterns = "|".join(f'"{command.name}:{name}"' for name in option.names)
                yield f"        {patterns})"
                if option.choices:
                    yield f'            words="{" ".join(option.choices)}"'
                    yield '            word="${current##*,}"  # of a list'
                    yield '            COMPREPLY=($(compgen -P "${current%"$word"}" -W "$words" -- "$word"))'
                yield "            return ;;"
    yield "    esac"
    yield '    case "$command" in'
    for command in commands:
        values = [value for argument in command.arguments for value in argument.choices]
        words, options = " ".join([*_words(command, commands), *values]), " ".join(_flags(command))
        yield f'        "{command.name}") words="{words}" options="{options}" ;;'
    yield "    esac"
    yield '    [[ "$current" != -* ]] || words="$options"'
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _mqstore mqstore"


def zsh(commands: list[Command]) -> str:
    """completions/zsh/_mqstore."""
    return "\n".join(["#compdef mqstore", NOTE, *_zsh_lines(commands)]) + "\n"


def _zsh_function(command: Command) -> str:
    return "_" + command.name.replace(" ", "_").replace("-", "_")


def _zsh_lines(commands: list[Command]) -> Iterator[str]:
    for command in commands:
        below = [c for c in commands if c.name == f"{command.name} {c.word}"]
        yield f"{_zsh_function(command)}() {{"
        yield "    local state line"
        yield "    _arguments -C \\"
        for option in command.options:
            yield from _zsh_option(option)
        if below:
            yield "        '1: :->command' '*:: :->rest'"
            yield "    case $state in"
            yield "        command) _values command \\"
            rows = [f"            {_zsh_quoted(f'{c.word}[{_zsh_text(c.summary)}]')}" for c in below]
            yield " \\\n".join(rows) + " ;;"
            yield "        rest) case $line[1] in"
            for c in below:
                yield f"            {c.word}) {_zsh_function(c)} ;;"
            yield "        esac ;;"
            yield "    esac"
        else:
            values = " ".join(value for argument in command.arguments for value in argument.choices)
            yield f"        '*:code:({values})'" if values else "        '*:file:_files'"
        yield "}"
    yield '_mqstore "$@"'


def _zsh_text(text: str) -> str:
    """Text inside the brackets of a specification."""
    for sign in ("\\", "[", "]", ":"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_option(option: Parameter) -> Iterator[str]:
    value = ""
    if option.takes_value:
        action = f"({' '.join(option.choices)})" if option.choices else "_files" if option.is_path else ""
        value = f":{_zsh_text(option.metavar)}:{action}"
    for name in option.names:
        times = "*" if option.repeatable else ""
        spec = f"{times}{name}[{_zsh_text(option.help)}]{value}"
        yield f"        {_zsh_quoted(spec)} \\"


def fish(commands: list[Command]) -> str:
    """completions/fish/mqstore.fish."""
    return "\n".join([NOTE, *_fish_lines(commands)]) + "\n"


def _fish_lines(commands: list[Command]) -> Iterator[str]:
    yield "function __mqstore_at --description 'The command that is typed is this one'"
    yield "    set --local command mqstore"
    yield "    for word in (commandline --tokenize --cut-at-cursor --current-process)"
    yield '        switch "$command $word"'
    yield f"            case {' '.join(_fish_quoted(command.name) for command in commands[1:])}"
    yield '                set command "$command $word"'
    yield "        end"
    yield "    end"
    yield '    test "$command" = "$argv"'
    yield "end"
    for command in commands:
        condition = _fish_quoted(f"__mqstore_at {command.name}")
        for word in _words(command, commands):
            (below,) = (c for c in commands if c.name == f"{command.name} {word}")
            yield f"complete -c mqstore -n {condition} -f -a {word} -d {_fish_quoted(below.summary)}"
        if values := " ".join(value for argument in command.arguments for value in argument.choices):
            yield f"complete -c mqstore -n {condition} -f -a {_fish_quoted(values)}"
        for option in command.options:
            yield f"complete -c mqstore -n {condition} {_fish_option(option)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_option(option: Parameter) -> str:
    parts = []
    for name in option.names:
        parts.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
    if option.choices:
        parts.append(f"-x -a {_fish_quoted(' '.join(option.choices))}")
    elif option.takes_value:
        parts.append("-r" if option.is_path else "-x")
    return " ".join([*parts, f"-d {_fish_quoted(option.help)}"])
