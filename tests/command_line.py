"""Run commands for tests: return the output of a successful command, or the error line of a bad one."""

import json

from iocourse import cli


def refused(capsys, main, *arguments):
    """Return the error line of a bad command. argparse raises SystemExit; errors of iocourse return 2."""
    try:
        code = main(arguments)
    except SystemExit as leave:
        code = leave.code
    said = capsys.readouterr()
    assert code == 2 and said.out == "" and said.err.count("\n") == 1, said
    return said.err


def counted(capsys, *arguments):
    """Return the output of `iocourse count`."""
    assert cli.main(["count", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def count_refused(capsys, *arguments):
    """Return the error line of `iocourse count` for bad arguments."""
    return refused(capsys, cli.main, "count", *arguments)


def as_json(capsys, *arguments):
    """Return the JSON object that `iocourse count --json` prints."""
    return json.loads(counted(capsys, *arguments, "--json"))
