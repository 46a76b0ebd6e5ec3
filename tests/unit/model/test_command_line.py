"""Tests of how command lines are shown: the program and its arguments, with secrets redacted."""

from __future__ import annotations

import pytest

from gpuwidget.model.command_line import parse, redact

HEX = "0123456789abcdef" * 2 + "01234567"
AWS_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
CODE = "import os; os.environ['HF_TOKEN'] = 'x'"


@pytest.mark.parametrize(
    ("words", "program", "arguments"),
    [
        (["/usr/bin/python3", "/home/ada/train.py", "--lr", "1"], "python3 train.py", "--lr 1"),
        (["python"], "python", ""),
        (["python", "-"], "python -", ""),
        (["python", "-", "--lr", "1"], "python -", "--lr 1"),
        (["python3.13t", "app/"], "python3.13t app", ""),
        # Options of the interpreter. The value of an option is not mistaken for the script.
        (["python", "-u", "-W", "ignore", "-X", "dev", "t.py", "-u"], "python t.py", "-u"),
        (["python", "-uBWerror", "-Xdev", "t.py"], "python t.py", ""),
        (["python", "--check-hash-based-pycs", "never", "t.py"], "python t.py", ""),
        (["python", "-W"], "python", "-W"),
        # Modules that are run with -m.
        (["python", "-m", "torch.distributed.run", "t.py"], "python -m torch.distributed.run", "t.py"),
        (["python", "-Xfrozen_modules=off", "-umipykernel_launcher"], "python -m ipykernel_launcher", ""),
        (["python", "-m"], "python -m", ""),
        (["python", "-m", "no module"], "python -m", ""),
        # Code that is passed as an argument.
        (["python", "-c", CODE, "argument"], "python -c", "[code]"),
        (["python", f"-uc{CODE}"], "python -c", "[code]"),
        (["python", "-c", "from m import x", "--multiprocessing-fork"], "python (multiprocessing)", "[code]"),
        (["bash", "-lc", "python t.py --key X"], "bash -c", "[code]"),
        (["node", "--eval", "x()"], "node", "[code]"),
        (["perl", "-eprint 1"], "perl", "[code]"),
        # Other interpreters, and programs that run a script.
        (["/bin/bash", "-o", "pipefail", "run.sh", "-x"], "bash run.sh", "-x"),
        (["-bash"], "bash", ""),
        (
            ["torchrun", "--nproc-per-node=2", "/a/t.py", "--lr", "1"],
            "torchrun t.py",
            "--nproc-per-node=2 --lr 1",
        ),
        (["node", "--max-old-space-size", "4096", "app.js"], "node app.js", "--max-old-space-size 4096"),
        # Wrapper programs and assignments of environment variables before the program.
        (["env", "-u", "A", "HF_TOKEN=x", "python", "t.py"], "python t.py", "-u A HF_TOKEN=[redacted]"),
        (["HF_TOKEN=x", "python", "t.py"], "python t.py", "HF_TOKEN=[redacted]"),
        (["nohup", "nice", "-n", "5", "python", "-m", "a.b"], "python -m a.b", "nice -n 5"),
        (["timeout", "10", "sleep", "5"], "timeout", "10 sleep 5"),
        # Programs that rewrite their command line into one string.
        (["python train.py --key X --lr 1"], "python train.py", "--key [redacted] --lr 1"),
        (
            ["python t.py --password my long secret --lr 1", "", ""],
            "python t.py",
            "--password [redacted] --lr 1",
        ),
        (["/usr/bin/vllm serve --api-key X", "rest"], "vllm", "serve --api-key [redacted]"),
        (["nginx: worker process /srv/a"], "nginx", "worker process /srv/a"),
        (["ray::Trainer.train"], "ray::Trainer.train", ""),
        (["KEY=x"], "short name", "KEY=[redacted]"),
        # Empty command lines, and names with unusual characters or lengths.
        ([], "short name", ""),
        (["", ""], "short name", ""),
        (["/"], "short name", ""),
        (["/opt/My App/short name", "x"], "short name", "x"),
        (["/opt/My App/other", "x"], "My", "App/other x"),
        ([f"hf_{HEX}", "x"], "[redacted]", "x"),
        (["python", "https://ada:x@host/t.py?token=x"], "python t.py?token=[redacted]", ""),
        (["a\nb\t", "c\n d"], "a", "b c d"),
        (["python", "x" * 90 + ".py"], "python " + "x" * 52 + "…", ""),
        (["train", "x" * 90], "train", "x" * 79 + "…"),
    ],
)
def test_program_and_arguments(words: list[str], program: str, arguments: str) -> None:
    """A program is shown with the name of its script or module, without code, folders or secrets."""
    assert parse(words, "short name") == (program, arguments)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        # Options whose value is the next word or follows '='.
        (["--hf-token", "hf_SECRET"], "--hf-token [redacted]"),
        (["--hf-token=hf_SECRET"], "--hf-token=[redacted]"),
        (["-password", "x", "--lr", "1"], "-password [redacted] --lr 1"),
        (["--password=my long secret", "x"], "--password=[redacted]"),
        (["--password", "-x", "--lr", "1"], "--password [redacted] --lr 1"),
        (["--auth", "--password", "x", "--lr", "1"], "--auth [redacted] [redacted] --lr 1"),
        (["--hfToken", "x"], "--hfToken [redacted]"),
        (["--key", "x"], "--key [redacted]"),
        (["--passwd=x", "--db.pwd=x"], "--passwd=[redacted] --db.pwd=[redacted]"),
        (["--client_secret=x"], "--client_secret=[redacted]"),
        (["--credentials", "x", "--cookie=x"], "--credentials [redacted] --cookie=[redacted]"),
        (["-p", "x", "--lr", "1"], "-p [redacted] --lr 1"),
        (["-p8xK", "-p=x", "-patience", "3"], "-p[redacted] -p[redacted] -patience 3"),
        (["-u", "bob:x", "http://host"], "-u [redacted] http://host"),
        (["--passw", "x", "-Dpw=x", "--Data", "y"], "--passw [redacted] -Dpw=[redacted] --Data y"),
        # Environment variables, settings and JSON.
        (["WANDB_API_KEY=x", "PGPASSWORD=x", "A=1"], "WANDB_API_KEY=[redacted] PGPASSWORD=[redacted] A=1"),
        (["+trainer.api_key=x", "model=gpt"], "+trainer.api_key=[redacted] model=gpt"),
        (["token:", "x"], "token: [redacted]"),
        (['{"lr": 1, "api_key": "x"}'], '{"lr": 1, "api_key":[redacted]'),
        ([r"{\"password\":\"x\"}"], r"{\"password\":[redacted]"),
        # HTTP headers.
        (["-H", "Authorization: Bearer x"], "-H Authorization:[redacted]"),
        (["Authorization:", "Bearer", "x", "--lr", "1"], "Authorization: Bearer [redacted] --lr 1"),
        (["use bearer x y"], "use bearer [redacted]"),
        # URLs.
        (["https://ada:x@host/a?b=1"], "https://[redacted]@host/a?b=1"),
        (["https://ada:x/y@host"], "https://[redacted]@host"),
        (["s3://bucket/x@2"], "s3://[redacted]@2"),
        (["https://host/a?b=1&access_token=x&c=2"], "https://host/a?b=1&access_token=[redacted]"),
        (["ada:x@host:5432/db"], "[redacted]@host:5432/db"),
        # Tokens in well-known formats, anywhere in a word.
        ([f"hf_{HEX}", f"a/ghp_{HEX}", f"x=sk-proj-{HEX}"], "[redacted] a/[redacted] x=[redacted]"),
        ([AWS_ID, AWS_KEY, HEX], "[redacted] [redacted] [redacted]"),
        (["login", "aB3" * 11], "login [redacted]"),
        (["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"], "[redacted]"),
        # Words that look similar to secrets.
        (["--max-new-tokens", "512", "--max_tokens=4"], "--max-new-tokens 512 --max_tokens=4"),
        (["--tokenizer", "gpt2", "--author", "ada"], "--tokenizer gpt2 --author ada"),
        (["--passes", "3", "--pin-memory", "1"], "--passes 3 --pin-memory 1"),
        (["--data", "hf_datasets", "sk-learn", "a:b"], "--data hf_datasets sk-learn a:b"),
        (["https://host:8080/a"], "https://host:8080/a"),
        ([], ""),
    ],
)  # fmt: skip
def test_arguments_without_secrets(words: list[str], shown: str) -> None:
    """Values that may be secret are redacted, even if they contain spaces. All other arguments are shown."""
    assert redact(words) == shown


@pytest.mark.parametrize("word", ["a" * 1_000_000, "a" * 500_000 + "://" + "b" * 500_000, "a:" * 500_000])
def test_megabytes_of_arguments(word: str) -> None:
    """Even a command line of several megabytes is parsed without a noticeable delay, so another user's
    process can't slow down the list of processes.
    """
    assert parse(["python", "t.py", word, "--lr", "1"]) == ("python t.py", "[redacted] --lr 1")
    assert parse(["train", *["x"] * 100_000]) == ("train", "x " * 39 + "x…")
    assert parse([" ".join(["train", *["x"] * 100_000])]) == ("train", "x " * 39 + "x…")
    assert parse([word]).program == "[redacted]"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["mysql", "-ppassword", "-h", "db"], "-p[redacted] -h db"),
        (["perl", "-ne", "print if /x/"], "[code]"),
        (["python", "train.py", "-patience", "3"], "-patience 3"),
    ],
)
def test_arguments_that_depend_on_the_program(words: list[str], arguments: str) -> None:
    """The password that follows ``-p`` of a database client is redacted, and so is the code that follows
    combined options of perl, such as ``-ne``. Other programs' options of the same form are shown.
    """
    assert parse(words).arguments == arguments
