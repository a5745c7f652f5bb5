"""`iocourse count` as its tests call it."""

import json

from iocourse.cli import main


def counted(capsys, *arguments):
    """What a command prints that does what it is asked."""
    assert main(["count", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *arguments):
    """The one line on standard error of a refused command."""
    try:
        code = main(["count", *arguments])
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.count("\n") == 1
    return err


def as_json(capsys, *arguments):
    """Its JSON object."""
    return json.loads(counted(capsys, *arguments, "--json"))
