"""Tests of the options of %%gpuwatch, and of removing the %%gpuwatch line from a cell."""

from __future__ import annotations

import pytest

from gpuwidget.kernel.cells.options import HELP, find_in_cell, parse, without_watch_line
from gpuwidget.kernel.commands.subcommands import closest_command
from gpuwidget.model.errors import OptionError


def test_defaults() -> None:
    """By default, all GPUs are sampled five times per second, and the end of a run waits for the GPU's work.

    A live chart and a card are shown below the cell.
    """
    options = parse("")
    assert (options.run.gpus, options.run.interval_s, options.run.sync) == ((), 0.2, True)
    assert (options.live, options.quiet, options.label) == (True, False, None)


def test_every_option() -> None:
    """--gpu accepts GPUs separated by spaces or commas. A --name with spaces is given in quotes."""
    options = parse("--gpu 0,1 cuda:2 --gpu GPU-ab --interval 1.5 --no-live --no-sync --name 'my run'")
    assert options.run.gpus == ("0", "1", "cuda:2", "GPU-ab")
    assert (options.run.interval_s, options.run.sync) == (1.5, False)
    assert (options.live, options.label) == (False, "my run")
    assert parse("--quiet").live is False


@pytest.mark.parametrize(
    ("line", "need", "wait_s"),
    [
        ("", None, None),
        ("--need 20GiB", 20 * 1024**3, None),
        ("--need 1.5gib --wait 10m", 1.5 * 1024**3, 600),
        ("--need 500MB --wait 2h", 500_000_000, 7200),
        ("--need '8 GB' --wait 90s", 8_000_000_000, 90),
        ("--need 1GiB --wait 5min", 1024**3, 300),
    ],
)
def test_need_and_wait(line: str, need: int | None, wait_s: float | None) -> None:
    """--need accepts a size with a unit, and --wait accepts a duration with a unit."""
    options = parse(line)
    assert (options.need, options.wait_s) == (need, wait_s)


@pytest.mark.parametrize(
    "line",
    [
        "--wrong",
        "something",
        "--interval abc",
        "--interval 0",
        "--interval nan",
        "--interval 61",
        "--name",
        "--gpu",
        "--need 20",
        "--need 20G",
        "--need 0GiB",
        "--need -1GiB",
        "--need nanGiB",
        "--need",
        "--need 1GiB --wait 10",
        "--need 1GiB --wait forever",
        "--wait 10m",
    ],
)
def test_bad_options_are_one_line(line: str) -> None:
    """The error for an invalid option is one line that begins with %%gpuwatch and refers to %%gpuwatch? for
    help."""
    with pytest.raises(OptionError) as raised:
        parse(line)
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith("%%gpuwatch: ")
    assert text.endswith("%%gpuwatch? shows the options.")


def test_exclusive_is_unknown() -> None:
    """`--exclusive` is rejected as an unknown option, alone and together with `--need`."""
    message = "%%gpuwatch: unrecognized arguments: --exclusive. %%gpuwatch? shows the options."
    for line in ("--exclusive", "--exclusive --need 1GiB --wait 10m"):
        with pytest.raises(OptionError) as raised:
            parse(line)
        assert str(raised.value) == message
    assert "--exclusive" not in HELP


@pytest.mark.parametrize(
    ("line", "meant"), [("--ned 20GiB", "--need"), ("--quite", "--quiet"), ("--nolive", "--no-live")]
)
def test_a_misspelled_option(line: str, meant: str) -> None:
    """The error for a misspelled option suggests the option that the user probably meant."""
    with pytest.raises(OptionError) as raised:
        parse(line)
    assert f"unrecognized arguments: {line}. Did you mean {meant}?" in str(raised.value)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("memry --cells", "memory"),
        ("docter", "doctor"),
        ("wach off", "watch off"),
        ("swiches cudnn.benchmark on", "switches"),
        ("device cuda:1 twice", None),
        ("nonsense", None),
    ],
)
def test_a_misspelled_command(words: str, meant: str | None) -> None:
    """``%gpu`` suggests the command that the user probably meant, unless there is none."""
    assert closest_command(words.split()) == meant


def test_an_unclosed_quote() -> None:
    """A missing closing quote is reported as a one-line error."""
    with pytest.raises(OptionError, match="No closing quotation"):
        parse("--name 'x")


def test_help_names_every_option() -> None:
    """The help text of %%gpuwatch? contains every option."""
    for option in ("--gpu", "--interval", "--no-live", "--no-sync", "--quiet", "--name", "--need", "--wait"):
        assert option in HELP


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("%%gpuwatch\nx", ""),
        ("%%gpuwatch --quiet  \nx", "--quiet"),
        ("\n  \n%%gpuwatch\nx", ""),
        ("  %%gpuwatch\n  x", ""),
        ("%%time\n%%gpuwatch --no-live\nx", "--no-live"),
        ("%%timeit -n1\n\n%%gpuwatch\nx", ""),
        ("%%gpuwatch", ""),
        ("%%gpuwatch\n%%bash\nls", ""),
        ("%%gpuwatch?", None),
        ("%%gpuwatcher\nx", None),
        ("x\n%%gpuwatch", None),
        ("%%writefile f\n%%gpuwatch\nx", None),
        ("", None),
        ("\n\n", None),
    ],
)
def test_which_cells_are_watched(cell: str, options: str | None) -> None:
    """A cell is watched if %%gpuwatch is its first line that is not blank.

    %%time, %%timeit or %%prun may come before that line.
    """
    assert find_in_cell(cell) == options


@pytest.mark.parametrize(
    ("cell", "rest"),
    [
        ("%%gpuwatch\nx\n", "# %%gpuwatch\nx\n"),
        ("%%gpuwatch --quiet\nx", "# %%gpuwatch --quiet\nx"),
        ("\n%%gpuwatch\nx", "\n# %%gpuwatch\nx"),
        ("%%gpuwatch\n    x\n    y", "    # %%gpuwatch\n    x\n    y"),
        ("%%gpuwatch\n\n  x", "  # %%gpuwatch\n\n  x"),
        ("%%gpuwatch\n%%time\nx", "%%time\nx"),
        ("%%gpuwatch\n\n%%bash\nls", "%%bash\nls"),
        ("%%gpuwatch\n%%gpuwatch\nx", "# %%gpuwatch\nx"),
        ("%%gpuwatch", "# %%gpuwatch\n"),
        ("%%gpuwatch\n\n", "# %%gpuwatch\n\n"),
        ("%%gpuwatch?", "%%gpuwatch?"),
        ("x = 1\n", "x = 1\n"),
    ],
)
def test_the_watch_line_becomes_a_comment(cell: str, rest: str) -> None:
    """The %%gpuwatch line becomes a comment, so that the cell keeps its line numbers and indentation.

    If a cell magic follows, the %%gpuwatch line is removed instead, and the cell magic becomes the first
    line.
    """
    assert "".join(without_watch_line(cell.splitlines(keepends=True))) == rest
