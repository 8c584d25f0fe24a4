"""Comments are kept by formatting, where they were put, and are never compared."""

from __future__ import annotations

from cake.ir.parser import parse
from cake.ir.printer import COMMENT_COLUMN, format_file

TEXT = """\
# The file.
# Second line.
const A = 1                                         # after a const

# Before the kernel.
kernel k(a: f32[M],
         b: f32) for sm_90a:  # after the header
    # Before a const.
    const B: {1, 2} = 1

    tiles once:  # after tiles
        # Before an axis.
        m in M  # after an axis
        # Under the last item.

    role r: warps 4  # after a role
    # Before the do.
    do r:
        x = 1
        # Before the if.
        if x:  # after if
            pass
            # Under pass.
        # Before elif.
        elif x == 1:
            pass
        # Before else.
        else:  # after else
            pass
            # Under the last pass.
        # Under the if.
    # Under the do.
# Under the kernel.
"""


def test_comments_stay_with_their_nodes() -> None:
    file = parse(TEXT)
    const, (kernel,) = file.consts[0], file.kernels
    assert const.comments.before == ("# The file.", "# Second line.")
    assert const.comments.after == "# after a const"
    assert kernel.comments.before == ("# Before the kernel.",)
    assert kernel.comments.after == "# after the header"
    assert kernel.comments.below == ("# Under the kernel.",)
    assert kernel.consts[0].comments.before == ("# Before a const.",)
    assert kernel.tiles is not None
    assert kernel.tiles.comments.after == "# after tiles"
    axis = kernel.tiles.items[0]
    assert (axis.comments.before, axis.comments.after) == (("# Before an axis.",), "# after an axis")
    assert axis.comments.below == ("# Under the last item.",)
    assert kernel.dos[0].comments.before == ("# Before the do.",)
    assert kernel.dos[0].comments.below == ("# Under the do.",)
    choice = kernel.dos[0].body[1]
    assert choice.kind == "if"
    assert (choice.comments.before, choice.comments.after) == (("# Before the if.",), "# after if")
    assert choice.else_comments.below == ("# Under the if.",)
    assert choice.branches[0].body[0].comments.below == ("# Under pass.",)
    assert choice.branches[1].comments.before == ("# Before elif.",)
    assert choice.else_comments.before == ("# Before else.",)
    assert choice.else_comments.after == "# after else"
    assert choice.orelse[0].comments.below == ("# Under the last pass.",)


def test_formatting_keeps_every_comment() -> None:
    printed = format_file(parse(TEXT))
    assert format_file(parse(printed)) == printed
    assert [line.split("#", 1)[1] for line in printed.splitlines() if "#" in line] == [
        line.split("#", 1)[1] for line in TEXT.splitlines() if "#" in line
    ]


def test_comments_are_not_compared() -> None:
    bare = "\n".join(line.split("#")[0] for line in TEXT.splitlines())
    assert parse(bare) == parse(TEXT)


def test_comment_column() -> None:
    lines = format_file(parse("const A = 1 # a\nconst B = " + "f(" * 30 + ")" * 30 + "# b\n")).splitlines()
    assert lines[0].index("#") == COMMENT_COLUMN
    assert lines[1].endswith(")  # b")


def test_a_file_of_comments() -> None:
    assert format_file(parse("# one\n\n  # two\n")) == "# one\n# two\n"
    assert format_file(parse("")) == ""
    assert format_file(parse("\n \n\t\n")) == ""


def test_comments_inside_brackets_move_above() -> None:
    file = parse(
        "kernel k(a: f32,  # first\n         # second\n         b: f32) for sm_90a:  # last\n    role r: warps 1\n"
    )
    assert file.kernels[0].comments.before == ("# first", "# second")
    assert file.kernels[0].comments.after == "# last"


def test_comments_under_a_declaration_that_moves() -> None:
    """Declarations are printed in one order; a comment under one goes on to what follows it."""
    head = "kernel k(a: f32) for sm_90a:\n"
    text = head + "    do r:\n        pass\n    # Before the role.\n    role r: warps 1\n    # Last.\n"
    printed = format_file(parse(text))
    assert format_file(parse(printed)) == printed
    assert printed.index("# Before the role.") < printed.index("role r")
    assert printed.index("role r") < printed.index("# Last.")
