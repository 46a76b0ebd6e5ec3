"""Tests of how command lines are shown: the program and its arguments, with secrets redacted."""

from __future__ import annotations

import pytest

from gpuwidget.model.command_line import full, parse
from gpuwidget.model.redaction import redact, redact_text

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
        (["kubectl", "exec", "p", "--", "python", "-c", CODE], "kubectl", "exec p -- python [code]"),
        (["ssh", "h", f"cd /a && python -c '{CODE}'", "x"], "ssh", "h cd /a && python [code]"),
        (["python", "-m", "IPython", "-c", CODE], "python -m IPython", "[code]"),
        (["srun", "psql", "-c", CODE, "python", "-c", CODE], "python -c", "psql [code] [code]"),
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


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ["/usr/bin/python3", "-u", "/home/ada/t.py", "--lr", "1"],
            "/usr/bin/python3 -u /home/ada/t.py --lr 1",
        ),
        (["train", *["--wide=64"] * 20], "train" + " --wide=64" * 20),
        (["train", *["x" * 150] * 20], ("train" + f" {'x' * 150}" * 20)[:1999] + "…"),
        # Values that may be secret: options, URLs, variables of the environment and passwords.
        (["/a/t", "--hf-token", "SECRET", "--lr=1"], "/a/t --hf-token [redacted] --lr=1"),
        (["t", "https://ada:x@host/a"], "t https://[redacted]@host/a"),
        (["t", "https://host/a?b=SECRET#c"], "t https://host/a?[redacted]"),
        (["t", "--url=https://host/a#SECRET"], "t --url=https://host/a#[redacted]"),
        (["docker", "run", "-e", "MODE=SECRET x", "image"], "docker run -e MODE=[redacted] image"),
        (["srun", "--export=ALL,MODE=SECRET", "t"], "srun --export=ALL,MODE=[redacted] t"),
        (["MODE=SECRET", "/a/python", "t.py"], "MODE=[redacted] /a/python t.py"),
        (["t", "lr=1", "a.B=2"], "t lr=1 a.B=2"),
        (["/usr/bin/mysql", "-pSECRET", "-h", "db"], "/usr/bin/mysql -p[redacted] -h db"),
        (["t", f"hf_{HEX}", "--password", "two words"], "t [redacted] --password [redacted]"),
        # Code, with all that follows it.
        (["/a/python", "-u", "-c", CODE, "argument"], "/a/python -u [code]"),
        (["/a/python", f"-uc{CODE}"], "/a/python [code]"),
        (["nohup", "env", "A=x", "bash", "-lc", CODE], "nohup env A=[redacted] bash [code]"),
        (["X=y", "perl", "-n", "-e", "SECRET"], "X=[redacted] perl -n [code]"),
        # Code for an interpreter anywhere in the line.
        (["kubectl", "exec", "pod", "--", "python", "-c", CODE], "kubectl exec pod -- python [code]"),
        (["ssh", "h", "python", "-u", "-c", CODE], "ssh h python -u [code]"),
        (["xargs", "-n1", "/bin/sh", "-c", CODE], "xargs -n1 /bin/sh [code]"),
        (["parallel", "perl", "-0777ne", "SECRET"], "parallel perl [code]"),
        (["python", "-m", "IPython", "-c", "SECRET"], "python -m IPython [code]"),
        (["su", "-", "ada", "--command=SECRET"], "su - ada [code]"),
        (["su", "ada", "-c", "SECRET"], "su ada [code]"),
        (["fish", "--command", "SECRET"], "fish [code]"),
        (["psql", "-h", "db.pl", "-c", "SECRET"], "psql -h db.pl [code]"),
        (["psql", "-h", "db", "-tAc", "SECRET"], "psql -h db [code]"),
        (["mysql", "-u", "ada", "-Ne", "SECRET"], "mysql -u ada [code]"),
        (["pwsh", "-NoProfile", "-Command", "SECRET"], "pwsh -NoProfile [code]"),
        (["php8.1", "-d", "a", "-r", "SECRET"], "php8.1 -d a [code]"),
        (["lua5.4", "-e", "SECRET"], "lua5.4 [code]"),
        (["python3-dbg", "-c", "SECRET"], "python3-dbg [code]"),
        (["fish", "-C", "SECRET"], "fish [code]"),
        (["ipython3", "--InteractiveShellApp.code_to_run=SECRET"], "ipython3 [code]"),
        # Code after words that are redacted to few characters.
        (["t", *[f"--token={'x' * 190}"] * 20, "sh", "-c", "SECRET"], "t" + " --token=[redacted]" * 11),
        (["mysql", "--execute=SECRET"], "mysql [code]"),
        (["docker", "run", "--rm", "python:3.12", "-c", "SECRET"], "docker run --rm python:3.12 [code]"),
        (["docker", "run", "--entrypoint=sh", "a", "-c", "SECRET"], "docker run --entrypoint=sh a [code]"),
        (["podman", "--entrypoint", "python", "a", "-c", "X"], "podman --entrypoint python a [code]"),
        # Code within a word.
        (["ssh", "h", "python -c 'SECRET'", "x"], "ssh h python [code]"),
        (["ssh", "h", "cd /a && bash -lc 'SECRET'"], "ssh h cd /a && bash [code]"),
        (["sbatch", "--wrap=python3 -c 'SECRET' x", "y"], "sbatch --wrap=python3 [code]"),
        (["kubectl", "--overrides", '["python","-c","SECRET"]'], 'kubectl --overrides ["python", [code]'),
        (["ssh", "h", "ssh k \"node -e 'SECRET'\""], 'ssh h ssh k "node [code]'),
        (["tmux", "new", "python -cSECRET"], "tmux new python [code]"),
        # Options of the same form that have no code.
        (["python", "t.py", "-c", "a.yaml", "-e", "5"], "python t.py -c a.yaml -e 5"),
        (["ssh", "h", "python t.py -c a.yaml"], "ssh h python t.py -c a.yaml"),
        (["flock", "/l", "python", "t.py", "-c", "a.yaml"], "flock /l python t.py -c a.yaml"),
        (["bash", "run.sh", "-c", "a"], "bash run.sh -c a"),
        (["java", "-server", "-cp", "a", "Main"], "java -server -cp a Main"),
        (["torchrun", "-m", "train", "-e", "5"], "torchrun -m train -e 5"),
        (["ssh", "h", "torchrun -m train --shift -1e-5"], "ssh h torchrun -m train --shift -1e-5"),
        (["train", "-c", "a.yaml", "--command", "b"], "train -c a.yaml --command b"),
        # Secrets within a word that is a command line.
        (["ssh", "h", "t --password 'SECRET x' --lr 1"], "ssh h t --password [redacted] --lr 1"),
        (["ssh", "h", "t --password SECRET A_KEY=x"], "ssh h t --password [redacted] A_KEY=[redacted]"),
        # Programs that rewrite their command line into one string.
        (["python t.py --key X --lr 1", ""], "python t.py --key [redacted] --lr 1"),
        (["MODE=SECRET"], "MODE=[redacted]"),
        ([], None),
        (["", " "], None),
    ],
)
def test_full_command_lines(words: list[str], shown: str | None) -> None:
    """The full command line has all folders and arguments, but no code and no values that may be secret."""
    assert full(words) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN=SECRET; LD_PRELOAD=/a", "HF_TOKEN=[redacted]; LD_PRELOAD=/a"),
        ("pip -i https://ada:SECRET@host/simple x", "pip -i https://[redacted]@host/simple x"),
        ("run --api-key SECRET --lr 1", "run --api-key [redacted] --lr 1"),
        ("run '--api-key=SECRET' '--lr=1'", "run '--api-key=[redacted]' '--lr=1'"),
        ("Authorization: Bearer SECRET, then", "Authorization: Bearer [redacted] then"),
        (f"the token hf_{HEX} is wrong", "the token [redacted] is wrong"),
        # Prose and other text that is similar to secrets.
        ("KeyError: 'x'. The key: a basic check", "KeyError: 'x'. The key: a basic check"),
        ("git+https://host/a.git@v1", "git+https://host/a.git@v1"),
        (f"/opt/Mini3/{'a' * 29}: none", f"/opt/Mini3/{'a' * 29}: none"),
        ("GPU-01234567-89ab-cdef-0123-456789abcdef", "GPU-01234567-89ab-cdef-0123-456789abcdef"),
        ("", ""),
    ],
)  # fmt: skip
def test_texts_without_secrets(text: str, shown: str) -> None:
    """In a text, tokens and values of secret options and variables are redacted, but not prose."""
    assert redact_text(text) == shown


def test_a_long_text() -> None:
    """A text of a megabyte without spaces is searched without a noticeable delay."""
    text = "x" * 1_000_000
    assert redact_text(text) == text


@pytest.mark.parametrize("word", ["a" * 1_000_000, "a" * 500_000 + "://" + "b" * 500_000, "a:" * 500_000])
def test_megabytes_of_arguments(word: str) -> None:
    """Even a command line of several megabytes is parsed without a noticeable delay, so another user's
    process can't slow down the list of processes.
    """
    assert parse(["python", "t.py", word, "--lr", "1"]) == ("python t.py", "[redacted] --lr 1")
    assert parse(["train", *["x"] * 100_000]) == ("train", "x " * 39 + "x…")
    assert parse([" ".join(["train", *["x"] * 100_000])]) == ("train", "x " * 39 + "x…")
    assert parse([word]).program == "[redacted]"
    assert full(["python", "t.py", word]) == "python t.py [redacted]"
    assert full(["node x " * 25] * 100).startswith("node x node x")  # type: ignore[union-attr]
    assert full([f"A={word}", "python", "t.py"]) == "[redacted] python t.py"


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
