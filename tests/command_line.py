"""Commands as their tests call them: what one prints that does as it is asked, or the line of a refusal."""

import json

from iocourse import cli


def refused(capsys, main, *arguments):
    """The line a bad command prints; argparse leaves by SystemExit, our own refusals return 2."""
    try:
        code = main(arguments)
    except SystemExit as leave:
        code = leave.code
    said = capsys.readouterr()
    assert code == 2 and said.out == "" and said.err.count("\n") == 1, said
    return said.err


def counted(capsys, *arguments):
    """What `iocourse count` prints."""
    assert cli.main(["count", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def count_refused(capsys, *arguments):
    """The line that `iocourse count` prints of bad arguments."""
    return refused(capsys, cli.main, "count", *arguments)


def as_json(capsys, *arguments):
    """The JSON object of `iocourse count`."""
    return json.loads(counted(capsys, *arguments, "--json"))
