"""Wrong command lines, as people type them: one line on stderr that says what to type, and the exit code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from basefs.daemon.config import Home
from basefs.daemon.keyfiles import default_keys
from basefs.management.main import COMMANDS, load
from basefs.replica.replica import Replica
from tests.support.commands import Cli
from tests.support.mounts import temporary_directory
from tests.support.node import Node

#: A command line, its exit code, and what its line says; BASE is the working directory, with the home in it.
STOPPED = [
    ("foo", 2, "there is no command foo: 'basefs help' lists them"),
    ("moun etc /srv/x", 2, "there is no command moun (did you mean mount?): 'basefs help' lists them"),
    ("mount.fuse", 2, "there is no command mount.fuse (did you mean mount?): 'basefs help' lists them"),
    (
        "config",
        2,
        "there is no command config: the settings are in the file config of $BASEFS_HOME, by default ~/.basefs",
    ),
    ("remove nope", 1, "there is no filesystem nope in BASE/home"),
    (
        "rm restored",
        2,
        "there is no command rm: 'basefs remove NAME' deletes a filesystem, and rm in its mount a file",
    ),
    ("ls etc", 2, "there is no command ls: 'basefs list' lists the filesystems, and ls in a mount its files"),
    ("init etc", 2, "there is no command init: 'basefs bootstrap NAME' makes a filesystem"),
    ("help help extra", 2, "help describes one command: write 'basefs help help'"),
    ("help nope", 2, "there is no command nope: 'basefs help' lists them"),
    ("log etc:/nginx --recursiv", 2, "(did you mean "),
    ("log etc:/nginx --recursiv", 2, "?): see 'basefs log --help'"),
    ("log etc:/nginx -n", 2, "option '-n' requires an argument: see 'basefs log --help'"),
    ("log etc:/nginx --cat", 2, "no such option '--cat' (did you mean 'basefs cat'?): see 'basefs log --help'"),
    ("log etc:/nginx --diff", 2, "(did you mean 'basefs diff'?): see 'basefs log --help'"),
    (
        "get new no.such.host.example",
        1,
        "): is the name right, and a name server reachable?",
    ),
    ("genkey nodir/key", 1, "cannot write the key nodir/key: No such file or directory"),
    ("log etc:/nginx/nginx.conf --cat 123", 2, "no such option '--cat' (did you mean 'basefs cat'?)"),
    ("log etc:/nginx/nginx.conf --cat ''", 2, "no such option '--cat' (did you mean 'basefs cat'?)"),
    ("log etc:/nginx/nginx.conf --diff 0096 --cat 0096", 2, "(did you mean 'basefs diff'?): see 'basefs log --help'"),
    (
        "log etc:/nginx/nginx.conf 0096",
        2,
        "log takes a path alone: 'basefs cat etc:/nginx/nginx.conf --at 0096' prints that revision, "
        "'basefs diff etc:/nginx/nginx.conf 0096' compares it with what is there now",
    ),
    ("log etc:/nginx twice", 2, "got unexpected extra argument (twice): see 'basefs log --help'"),
    ("revert etc:/nginx/nginx.conf 0", 2, "'0' is not a hash: give at least 8 digits of one that 'basefs log' lists"),
    ("mount conf relative/dir", 1, "BASE/relative/dir is not a directory: make it with 'mkdir"),
    ("import conf nofile", 1, "No such file or directory: nofile"),
    ("import x/y conf.backup", 2, "'x/y' is not a filesystem name"),
    (
        "get new 127.0.0.1:1 --id 00000000000000000000000000000000000000000000000000000000",
        1,
        "127.0.0.1:1: cannot reach 127.0.0.1:2 (Connection refused)",
    ),
    (
        "grant etc:/ root 1635d2be09866fba45068a3df9292c5e23d7487505450a22e28a074e900d6960",
        1,
        "root is the name of the key ",
    ),
    ("revoke etc:/ root", 1, "cannot be revoked"),
    ("--help nope", 2, "there is no command nope: 'basefs help' lists them"),
    ("installserf --version 99", 2, "--version takes three numbers, as in "),
    ("-x", 2, "see 'basefs --help'"),
    ("--versio", 2, "see 'basefs --help'"),
    ("list etc", 2, "see 'basefs list --help'"),
    ("genkey", 1, "BASE/home/key exists already: -f replaces it, and files that only it may write become read-only"),
    ("genkey -x", 2, "see 'basefs genkey --help'"),
    ("bootstrap", 2, "see 'basefs bootstrap --help'"),
    ("bootstrap etc", 1, "there is a filesystem etc already: -f deletes it, with all its history on this node"),
    (
        "bootstrap new -i 10.0.0.300",
        2,
        "'10.0.0.300' is not an address: use IP or IP:PORT, with a port from 1 to 65534",
    ),
    ("bootstrap new -i 10.0.0.1,10.0.0.2", 2, "'10.0.0.1,10.0.0.2' is not an address: use IP or IP:PORT"),
    ("bootstrap new -i foo.bar", 2, "-i takes an IP address, not 'foo.bar': 'getent hosts foo.bar' may know it"),
    (
        "bootstrap new -i 10.0.0.1:65535",
        2,
        "'10.0.0.1:65535' is not an address: use IP or IP:PORT, with a port from 1 to 65534",
    ),
    ("bootstrap 'x y'", 2, "'x y' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("bootstrap ''", 2, "'' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("bootstrap new -k /etc/passwd", 2, "/etc/passwd is not a private key in the PEM format, or that of OpenSSH"),
    ("bootstrap new -k nofile", 2, "no key at nofile: make one with 'basefs genkey nofile'"),
    ("get", 2, "see 'basefs get --help'"),
    ("get etc", 2, "see 'basefs get --help'"),
    ("get etc 127.0.0.1", 1, "there is a filesystem etc already: choose another name, or 'basefs remove etc' first"),
    (
        "get new 127.0.0.1:1",
        1,
        "127.0.0.1:1: cannot reach 127.0.0.1:2 (Connection refused): is a filesystem running there, and the port open?",
    ),
    ("get new 127.0.0.1 --id abc", 2, "an identity is 56 hexadecimal digits, as 'basefs list' prints it"),
    ("get a/b 127.0.0.1", 2, "'a/b' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("get .. 127.0.0.1", 2, "'..' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("get -x new 127.0.0.1", 2, "see 'basefs get --help'"),
    ("join -x", 2, "see 'basefs join --help'"),
    ("join new ./nofile", 2, "cannot read ./nofile: No such file or directory"),
    ("join new key.txt", 2, "that is no invitation: it begins with basefs1-, as 'basefs invite' printed it"),
    ("join new ./key.txt x", 2, "see 'basefs join --help'"),
    ("join basefs1-abcd", 2, "an invitation is no argument, as every user of this machine can see it there"),
    ("invite", 2, "see 'basefs invite --help'"),
    ("invite nope", 1, "there is no filesystem nope in BASE/home"),
    ("invite etc", 2, "no address of a member of etc is known, which the new machine needs"),
    ("invite etc --expires 5", 2, "'5' is not a length of time: write 30m, 24h, 7d or 1h30m"),
    ("invite etc --expires 5s", 2, "--expires takes a time from 1m to 365d, not '5s'"),
    ("invite etc --cancel x", 1, "no invitation x is in force: 'basefs invite etc --list' lists them"),
    ("mount", 2, "see 'basefs mount --help'"),
    ("mount etc", 2, "see 'basefs mount --help'"),
    ("mount nope mnt", 1, "there is no filesystem nope in BASE/home"),
    (
        "mount ect mnt",
        1,
        "there is no filesystem ect in BASE/home (did you mean etc?)",
    ),
    ("mount etc doesnotexist", 1, "BASE/doesnotexist is not a directory: make it with 'mkdir BASE/doesnotexist'"),
    ("mount etc /etc/passwd", 1, "/etc/passwd is not a directory: choose another path"),
    ("mount conf:/web mnt", 2, "this command takes a whole filesystem, not a path: write conf"),
    ("mount etc:/web mnt", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("mount etc mnt -b foo", 2, "-b takes an IP address of this machine, not 'foo'"),
    (
        "mount etc mnt -b 127.0.0.1:99999",
        2,
        "'127.0.0.1:99999' is not an address: use IP or IP:PORT, with a port from 1 to 65534",
    ),
    (
        "mount etc mnt -n 'a b'",
        2,
        "'a b' is not a node name: use up to 128 letters, digits, '.', '_' and '-'",
    ),
    ("mount etc mnt -s --hostname a/b", 2, "'a/b' is not a node name"),
    ("mount etc mnt --hostname ''", 2, "'' is not a node name"),
    ("mount etc mnt --never-publish ''", 2, "an empty pattern matches no name: leave it out"),
    ("mount etc mnt --profile fast", 2, "see 'basefs mount --help'"),
    ("mount etc mnt --handler-jobs 0", 2, "see 'basefs mount --help'"),
    (
        "mount etc mnt --encrypt-key-file /nonexist",
        1,
        "cannot read the encryption key /nonexist: No such file or directory",
    ),
    ("mount etc mnt -k /etc/passwd", 2, "/etc/passwd is not a private key in the PEM format, or that of OpenSSH"),
    ("mount etc mnt --metrics here:", 2, "--metrics takes PORT or IP:PORT: 'here:' is not ADDRESS:PORT"),
    ("run nope", 1, "there is no filesystem nope in BASE/home"),
    ("run etc:/nginx", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("unmount", 2, "see 'basefs unmount --help'"),
    ("unmount nope", 1, "there is no filesystem nope in BASE/home"),
    ("unmount mnt", 1, "there is no filesystem mnt in BASE/home"),
    ("unmount ./mnt", 1, "no BaseFS filesystem is mounted on ./mnt: 'basefs list' lists the mounts"),
    ("unmount /etc", 1, "no BaseFS filesystem is mounted on /etc: 'basefs list' lists the mounts"),
    ("unmount etc", 1, "etc is not running"),
    ("umount etc", 1, "etc is not running"),
    ("status nope", 1, "there is no filesystem nope in BASE/home"),
    ("status etc:/nginx", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("doctor nope", 1, "there is no filesystem nope in BASE/home"),
    ("doctor etc:/nginx", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("members etc", 1, "etc is not running: start it with 'basefs mount' or 'basefs run'"),
    ("members etc:/x", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("resources etc", 1, "etc is not running: start it with 'basefs mount' or 'basefs run'"),
    ("resources etc -n 0", 2, "see 'basefs resources --help'"),
    ("blocks nope", 1, "there is no filesystem nope in BASE/home"),
    ("blocks etc:/x", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("serf etc members", 1, "etc is not running: start it with 'basefs mount' or 'basefs run'"),
    ("serf etc", 2, "see 'basefs serf --help'"),
    ("check nope", 1, "there is no filesystem nope in BASE/home"),
    ("check etc:/nginx", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("log", 2, "see 'basefs log --help'"),
    ("log nope:/x", 1, "there is no filesystem nope in BASE/home"),
    ("log etc:nginx", 2, "a path begins with '/': write etc:/nginx"),
    ("log etc:", 2, "a path begins with '/': write etc:/"),
    ("log etc:/nope", 1, "the log has nothing at /nope"),
    ("log /etc/passwd", 2, "'/etc/passwd' is neither NAME:/PATH nor a path inside a mounted filesystem"),
    ("log /tmp", 2, "'/tmp' is neither NAME:/PATH nor a path inside a mounted filesystem"),
    ("log 'no?such:/x'", 2, "'no?such' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("show nope", 1, "there is no filesystem nope in BASE/home"),
    ("show etc:/nope", 1, "the log has nothing at /nope"),
    ("cat etc:/nginx/nginx.conf --at zzz", 2, "'zzz' is not a time"),
    ("cat etc:/nginx/nginx.conf --at 0", 2, "'0' is not a time"),
    (
        "cat etc:/nginx/nginx.conf --at 1M",
        2,
        "'1M' is ambiguous: write m for minutes, or 30d for a month",
    ),
    ("cat etc:/nginx", 1, "/nginx is a directory: 'basefs show -l etc:/nginx' lists it"),
    ("cat etc:/nope", 1, "nothing is at /nope"),
    ("diff etc:/nginx/nginx.conf 0", 2, "'0' is not a time"),
    ("diff etc:/nginx/nginx.conf zzz", 2, "'zzz' is not a time"),
    ("revert etc:/nginx/nginx.conf", 2, "give either the HASH of a revision or --at TIME"),
    (
        "revert etc:/nginx/nginx.conf deadbeef",
        1,
        "there is no entry deadbeef: 'basefs log' lists the entries of a path",
    ),
    (
        "revert etc:/nginx/nginx.conf zzz",
        2,
        "'zzz' is not a hash: give at least 8 digits of one that 'basefs log' lists",
    ),
    ("revert etc:/nginx/nginx.conf 00", 2, "'00' is not a hash: give at least 8 digits of one that 'basefs log' lists"),
    ("revert etc:/nope zz", 1, "the log has nothing at /nope"),
    ("revert etc:/nope 00", 1, "the log has nothing at /nope"),
    ("revert etc:/nope deadbeef", 1, "the log has nothing at /nope"),
    ("revert etc:/nginx 00 --at 5m", 2, "give either the HASH of a revision or --at TIME"),
    ("revert etc:/ --at tomorrowish", 2, "'tomorrowish' is not a time"),
    ("conflicts nope", 1, "there is no filesystem nope in BASE/home"),
    ("conflicts etc:/nope", 1, "the log has nothing at /nope"),
    ("watch nope", 1, "there is no filesystem nope in BASE/home"),
    ("watch etc", 1, "etc is not running: start it with 'basefs mount' or 'basefs run'"),
    ("export etc", 2, "see 'basefs export --help'"),
    ("export nope x", 1, "there is no filesystem nope in BASE/home"),
    ("export etc:/nope x", 1, "the log has nothing at /nope"),
    ("export etc mnt", 1, "Is a directory: mnt"),
    ("export etc /nonexist/x", 1, "No such file or directory: /nonexist/x"),
    ("import etc2 /etc/passwd", 1, "/etc/passwd: it is not an archive of 'basefs export'"),
    ("import etc nofile", 1, "No such file or directory: nofile"),
    ("import x/y nofile", 2, "'x/y' is not a filesystem name: use up to 64 letters, digits, '.', '_' and '-'"),
    ("keys nope", 1, "there is no filesystem nope in BASE/home"),
    ("keys etc:/nope", 1, "/nope does not exist"),
    ("grant", 2, "see 'basefs grant --help'"),
    ("grant etc:/ bob", 2, "see 'basefs grant --help'"),
    (
        "grant etc:/ bob 1234",
        2,
        "'1234' is neither a file nor a public key: give the .pub file of 'basefs genkey' or ssh-keygen",
    ),
    ("grant etc:/ bob /etc/passwd", 2, "a public key is 64 hexadecimal digits, as in the .pub file of genkey"),
    (
        "grant etc:/ bob nofile.pub",
        2,
        "'nofile.pub' is neither a file nor a public key: give the .pub file of 'basefs genkey' or ssh-keygen",
    ),
    ("grant etc:/ bob home/key", 2, "home/key is a private key, which must stay where it is: give home/key.pub"),
    ("grant etc:/nope bob 1635d2be09866fba45068a3df9292c5e23d7487505450a22e28a074e900d6960", 1, "/nope does not exist"),
    ("revoke etc:/", 2, "see 'basefs revoke --help'"),
    ("revoke etc:/ nobody", 1, "no key nobody is granted at /: 'basefs keys etc' lists the keys"),
    ("revoke etc:/ rooot", 1, "no key rooot is granted at / (did you mean root?): 'basefs keys etc' lists the keys"),
    ("revoke etc:/nginx alpha", 1, "no key alpha is granted at /nginx: 'basefs keys etc' lists the keys"),
    ("expel etc", 2, "see 'basefs expel --help'"),
    ("expel etc nobody", 1, "no key nobody is granted in etc: give a fingerprint of 'basefs keys etc'"),
    ("expel etc:/nginx root", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("rekey", 2, "see 'basefs rekey --help'"),
    ("rekey nope", 1, "there is no filesystem nope in BASE/home"),
    ("recover etc", 2, "see 'basefs recover --help'"),
    ("recover nope new.key", 1, "there is no filesystem nope in BASE/home"),
    ("recover etc home/key -k home/key", 1, "etc was made without recovery keys, so nothing replaces its root key"),
    ("completion tcsh", 2, "see 'basefs completion --help'"),
    ("completion", 2, "see 'basefs completion --help'"),
    ("installserf --sha256 12", 2, "--sha256 takes 64 hexadecimal digits"),
    ("grant etc:/ bob key.txt", 2, "a public key is 64 hexadecimal digits, as in the .pub file of genkey"),
    ("log etc --no-such", 2, "see 'basefs log --help'"),
    ("help nosuch", 2, "there is no command nosuch: 'basefs help' lists them"),
]
#: The same, while `etc` is mounted on BASE/mnt.
MOUNTED = [
    ("mount etc nginx", 1, "BASE/nginx is not a directory: make it with 'mkdir BASE/nginx'"),
    ("mount conf mnt -s", 1, "something is mounted on BASE/mnt already: unmount it, or choose another directory"),
    ("run etc", 1, "etc is running already: 'basefs unmount etc' stops it"),
    ("run conf --iface wlan9", 1, "the interface wlan9 is not there or has no IPv4 address: see 'ip address'"),
    ("run conf -b 10.99.0.1", 1, "cannot listen on 10.99.0.1"),
    ("run conf -s --handler /nginx/**", 2, "is a glob without a command: write '/nginx/**=CMD'"),
    ("run conf -s --handler /nginx/", 2, "is a glob without a command: write '/nginx/=CMD'"),
    ("bootstrap etc -f", 1, "etc is running"),
    ("check etc --repair --peers", 2, "--repair and --peers do not go together: give one of them"),
    ("check etc --repair", 1, "etc is running already: 'basefs unmount etc' stops it"),
    ("unmount mnt/nginx", 1, "no BaseFS filesystem is mounted on mnt/nginx: 'basefs list' lists the mounts"),
    ("status mnt/nginx", 2, "this command takes a whole filesystem, not a path: write etc"),
    ("log mnt/nope", 1, "the log has nothing at /nope"),
    ("watch etc --since abc", 2, "'abc' is not a token of this node's journal"),
    ("serf etc members", 1, "single"),
    ("mount conf empty -s -o nonsense", 2, "there is no mount option nonsense: leave it out"),
    ("revert mnt/nginx 00 --at 5m", 2, "give either the HASH of a revision or --at TIME"),
    ("import etc conf.backup", 1, ": import it under another name"),
    ("unmount conf", 1, "conf is not running"),
    ("members conf", 1, "conf is not running: start it with 'basefs mount' or 'basefs run'"),
    ("resources conf", 1, "conf is not running: start it with 'basefs mount' or 'basefs run'"),
    ("watch conf", 1, "conf is not running: start it with 'basefs mount' or 'basefs run'"),
    ("serf conf members", 1, "conf is not running: start it with 'basefs mount' or 'basefs run'"),
]
#: What people type after other tools, or briefly, and what it prints while `etc` is mounted: it is no mistake.
MEANT = [
    ("-v", "basefs "),
    ("version", "basefs "),
    ("help", "Usage: basefs [OPTIONS] COMMAND"),
    ("--help", "Usage: basefs [OPTIONS] COMMAND"),
    ("--help mount", "Usage: basefs mount "),
    ("status mnt", "etc\t"),
    ("log etc", ""),
    (
        "grant etc:/ 'bo b' 1635d2be09866fba45068a3df9292c5e23d7487505450a22e28a074e900d6960",
        "granted: bo b may write at /",
    ),
    ("revoke etc:/ 'bo b'", "revoked: bo b at /"),
    ("umount etc", ""),
]
#: The commands that start a daemon, which a test does not do in its own process.
STARTING = ("mount", "run")


@pytest.fixture(scope="module")
def machine() -> Iterator[Path]:
    """Filesystems `etc`, with a file, and `conf`, with an archive; and directories for a mount.

    All lines of this module share them: a wrong one changes nothing.
    """
    with temporary_directory() as directory, Node.temporary(directory) as node:
        node.basefs("bootstrap", "etc")
        node.basefs("bootstrap", "conf")
        node.basefs("export", "conf", directory / "conf.backup")
        home = Home(node.home)
        replica = Replica(home.existing("etc"), default_keys(home))
        replica.commit(lambda author: author.make_directory((b"nginx",)))
        replica.commit(lambda author: author.write((b"nginx", b"nginx.conf"), b"x"))
        replica.close()
        (directory / "mnt").mkdir()
        (directory / "empty").mkdir()
        (directory / "key.txt").write_text("no key")
        yield directory


@pytest.fixture
def base(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the commands, with BASEFS_HOME in it."""
    monkeypatch.setenv("BASEFS_HOME", str(machine / "home"))
    monkeypatch.chdir(machine)
    return machine


@pytest.fixture
def etc(cli: Cli) -> Cli:
    """The command line, on that machine."""
    return cli


def is_said(message: str, err: str, base: object) -> bool:
    return err.startswith("basefs: ") and err.count("\n") == 1 and message in err.replace(str(base), "BASE")


@pytest.mark.parametrize(("line", "code", "message"), STOPPED, ids=[line for line, _, _ in STOPPED])
def test_a_wrong_command_line_is_one_line(etc: Cli, line: str, code: int, message: str) -> None:
    found, out, err = etc.run(*shlex.split(line))
    assert (found, out) == (code, "")
    assert is_said(message, err, etc.base), err


@pytest.mark.fuse
@pytest.mark.process
def test_so_it_is_while_the_filesystem_is_mounted(etc: Cli, node: Node) -> None:
    node.mount("etc")
    for line, code, message in MOUNTED:
        found, out, err = etc.run(*shlex.split(line)) if line.split()[0] not in STARTING else spawned(node, line)
        assert (found, out) == (code, ""), line
        assert is_said(message, err, etc.base), (line, err)
    for line, beginning in MEANT:
        found, out, err = etc.run(*shlex.split(line))
        assert (found, err) == (0, ""), line
        assert out.startswith(beginning), (line, out)


def spawned(node: Node, line: str) -> tuple[int, str, str]:
    done = node.spawn(*shlex.split(line))
    return done.returncode, done.stdout, done.stderr


def test_each_command_is_among_them() -> None:
    tried = {line.split()[0] for line, _, _ in STOPPED + MOUNTED if line}
    assert set(COMMANDS) <= tried


def test_no_help_text_names_an_option_that_is_not_there() -> None:
    """In what a message or a help text tells to type."""
    for name in COMMANDS:
        command = load(name)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for other, option in re.findall(r"'basefs (\w+)[^']* (--?[a-z-]+)", command.help or ""):
            assert other != name or option in known, (name, option)
