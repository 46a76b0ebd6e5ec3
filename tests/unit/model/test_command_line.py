"""Tests of which program a command line runs."""

from __future__ import annotations

import pytest

from gpuwidget.model.command_line import program_name

HEX = "0123456789abcdef" * 2 + "01234567"
CODE = "import os; os.environ['HF_TOKEN'] = 'x'"


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["/usr/bin/python3", "/home/ada/train.py", "--lr", "1"], "python3 train.py"),
        (["python"], "python"),
        (["python", "-"], "python -"),
        (["python", "-", "--lr", "1"], "python -"),
        (["python3.13t", "app/"], "python3.13t app"),
        # Options of the interpreter. The value of an option is not mistaken for the script.
        (["python", "-u", "-W", "ignore", "-X", "dev", "t.py", "-u"], "python t.py"),
        (["python", "-uBWerror", "-Xdev", "t.py"], "python t.py"),
        (["python", "--check-hash-based-pycs", "never", "t.py"], "python t.py"),
        (["python", "-W"], "python"),
        # Modules that are run with -m.
        (["python", "-m", "torch.distributed.run", "t.py"], "python -m torch.distributed.run"),
        (["python", "-Xfrozen_modules=off", "-umipykernel_launcher"], "python -m ipykernel_launcher"),
        (["python", "-m"], "python -m"),
        (["python", "-m", "no module"], "python -m"),
        # Code that is passed as an argument.
        (["python", "-c", CODE, "argument"], "python -c"),
        (["python", f"-uc{CODE}"], "python -c"),
        (["python", "-c", "from m import x", "--multiprocessing-fork"], "python (multiprocessing)"),
        (["bash", "-lc", "python t.py --key X"], "bash -c"),
        (["node", "--eval", "x()"], "node"),
        (["perl", "-eprint 1"], "perl"),
        (["kubectl", "exec", "p", "--", "python", "-c", CODE], "kubectl"),
        (["ssh", "h", f"cd /a && python -c '{CODE}'", "x"], "ssh"),
        (["python", "-m", "IPython", "-c", CODE], "python -m IPython"),
        (["srun", "psql", "-c", CODE, "python", "-c", CODE], "python -c"),
        # Other interpreters, and programs that run a script.
        (["/bin/bash", "-o", "pipefail", "run.sh", "-x"], "bash run.sh"),
        (["/bin/bash", "-euo", "pipefail", "run.sh", "-x"], "bash run.sh"),
        (["bash", "-s", "SECRET"], "bash"),
        (["-bash"], "bash"),
        (["torchrun", "--nnodes=2", "-m", "train.main", "t.py"], "torchrun -m train.main"),
        (["accelerate", "launch", "--module", "train"], "accelerate -m train"),
        (["torchrun", "--nproc-per-node=2", "/a/t.py", "--lr", "1"], "torchrun t.py"),
        (["node", "--max-old-space-size", "4096", "app.js"], "node app.js"),
        # Wrapper programs and assignments of environment variables before the program.
        (["env", "-u", "A", "HF_TOKEN=x", "python", "t.py"], "python t.py"),
        (["HF_TOKEN=x", "python", "t.py"], "python t.py"),
        (["nohup", "nice", "-n", "5", "python", "-m", "a.b"], "python -m a.b"),
        (["timeout", "10", "sleep", "5"], "timeout"),
        # Programs that rewrite their command line into one string.
        (["python train.py --key X --lr 1"], "python train.py"),
        (["python t.py --password my long secret --lr 1", "", ""], "python t.py"),
        (["/usr/bin/vllm serve --api-key X", "rest"], "vllm"),
        (["nginx: worker process /srv/a"], "nginx"),
        (["ray::Trainer.train"], "ray::Trainer.train"),
        (["KEY=x"], "short name"),
        # Empty command lines, and names with unusual characters or lengths.
        ([], "short name"),
        (["", ""], "short name"),
        (["/"], "short name"),
        (["/opt/My App/short name", "x"], "short name"),
        (["/opt/My App/other", "x"], "My"),
        ([f"hf_{HEX}", "x"], "[redacted]"),
        (["python", "https://ada:x@host/t.py?token=x"], "python t.py?token=[redacted]"),
        (["a\nb\t", "c\n d"], "a"),
        (["python", "x" * 90 + ".py"], "python " + "x" * 52 + "…"),
        (["train", "x" * 90], "train"),
    ],
)
def test_program(words: list[str], program: str) -> None:
    """A program is shown with the name of its script or module, without arguments, code, folders or
    secrets."""
    assert program_name(words, "short name") == program


@pytest.mark.parametrize("word", ["a" * 1_000_000, "a" * 500_000 + "://" + "b" * 500_000, "a:" * 500_000])
def test_megabytes_of_arguments(word: str) -> None:
    """Even a command line of several megabytes is parsed without a noticeable delay, so another user's
    process can't slow down the list of processes.
    """
    assert program_name(["python", "t.py", word, "--lr", "1"]) == "python t.py"
    assert program_name(["python", word]) == "python [redacted]"
    assert program_name(["train", *["x"] * 100_000]) == "train"
    assert program_name([" ".join(["train", *["x"] * 100_000])]) == "train"
    assert program_name([word]) == "[redacted]"
