"""`basefs completion`: what a shell needs to complete this command, with the names and paths of filesystems."""

from __future__ import annotations

import click

from basefs.management.output import examples

#: What names the shell in the environment of a command that is asked to complete its own command line.
VARIABLE = "_BASEFS_COMPLETE"

#: Each hands over the command line up to the cursor and reads lines of a kind, a comma and a word.
SCRIPTS = {
    "bash": """\
_basefs_completion() {
    local kind word
    COMPREPLY=()
    while IFS=, read -r kind word; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            open) compopt -o nospace; COMPREPLY+=("$word") ;;
            *) COMPREPLY+=("$word") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" BREAKS="$COMP_WORDBREAKS" _BASEFS_COMPLETE=bash_complete "$1")
}
complete -o nosort -F _basefs_completion basefs
""",
    "zsh": """\
#compdef basefs
_basefs_completion() {
    local kind word
    local -a words_open words_done
    while IFS=, read -r kind word; do
        case $kind in
            dir) _path_files -/ ;;
            file) _files ;;
            open) words_open+=("$word") ;;
            *) words_done+=("$word") ;;
        esac
    done < <(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" _BASEFS_COMPLETE=zsh_complete ${words[1]})
    (( $#words_open )) && compadd -S '' -a words_open
    (( $#words_done )) && compadd -a words_done
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _basefs_completion "$@"
else
    compdef _basefs_completion basefs
fi
""",
    "fish": """\
function _basefs_completion
    COMP_LINE=(commandline -cp) _BASEFS_COMPLETE=fish_complete basefs | while read --delimiter , kind word
        switch $kind
            case dir
                __fish_complete_directories (commandline -ct)
            case file
                __fish_complete_path (commandline -ct)
            case '*'
                echo $word
        end
    end
end
complete --no-files --command basefs --arguments '(_basefs_completion)'
""",
}


@click.command(
    epilog=examples(
        "source <(basefs completion bash)",
        "source <(basefs completion zsh)",
        "basefs completion fish | source",
    )
)
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    Add the line of your shell below to its start-up file, such as ~/.bashrc. The Debian package installs the
    scripts where the shells look for them.
    """
    click.echo(SCRIPTS[shell], nl=False)
