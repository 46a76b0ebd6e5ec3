"""Find the program that a command line runs, and its script or module.

Any user of a machine can read every command line, but what gpuwidget shows may be saved in a notebook and
shared. gpuwidget therefore never shows a program's arguments: they may be secret, and the program with its
script or module (``python train.py``) already tells which process it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwidget.model.redaction import REDACTED, redact_text

_MAX_PROGRAM = 60
_MAX_WORD = 200
"""Maximum number of characters of a word of the program's name. Longer words are redacted."""
_MAX_WORDS = 100
_SHORT_NAME = 15
"""Number of characters of a process's name that Linux stores (TASK_COMM_LEN without the final NUL)."""


def program_name(words: Sequence[str], name: str = "") -> str:
    """Return the file name of the executable, with its script or module: ``python train.py``.

    The first of ``words`` is the executable. If the program has rewritten its command line (setproctitle),
    ``words`` has one string, possibly followed by empty ones. ``name`` is the process's short name. It is
    used if no word names a program. The result is one line of at most 60 characters, without secrets and
    without code. It may contain control characters.
    """
    words = _split(words, name)
    first = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    program = _program(words[first], words[first + 1 :]) if first < len(words) else ""
    line = " ".join((program or _visible(name)).split())
    return line if len(line) <= _MAX_PROGRAM else line[: _MAX_PROGRAM - 1] + "…"


_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"(?:graalpy|pypy|python)[\d.]*(?:[a-z]|-dbg|\.exe)?")
_PYTHON_OPTIONS_WITH_VALUE = "cmWX"
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_SHELL = re.compile(r"(?:a|ba|c|da|fi|k|mk|rba|tc|xon|z)?sh")
_SHELL_OPTION_WITH_VALUE = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")
_RUNNERS = re.compile(
    r"(?:IPython|Rscript|accelerate|bun|deepspeed|deno|ipython|java|julia|lua|luajit|node|nodejs|perl|php|"
    r"ruby|streamlit|torchrun)[\d.]*"
)
"""Programs that run a script. gpuwidget does not know which of their options take a value, so it finds the
script by its suffix."""
_SCRIPT = re.compile(r"[^-\s=:?&][^\s=:?&]*\.(?:py|pyz|ipynb|sh|js|mjs|ts|R|r|jl|pl|rb|lua|php|jar)")
_CODE_OPTION = re.compile(
    r"-(?:0\d*)?[ailnpsw]*[eE].*|-c(?:=.*)?|eval|"
    r"--(?:c|command|eval|exec|execute|print|\w+\.(?:code_to_run|exec_lines))(?:=.*)?",
    re.DOTALL,
)
_LAUNCHERS = re.compile(r"accelerate|deepspeed|java|streamlit|torchrun")
"""Programs among ``_RUNNERS`` that receive no code with short options, such as ``-e``, but may receive a
module with ``-m``."""
_PHP_CODE_OPTION = re.compile(r"-[BER].*|-r.*|--(?:process-(?:begin|code|end)|run)(?:=.*)?", re.DOTALL)
_WRAPPERS = re.compile(
    r"apptainer|chrt|conda|docker|dumb-init|env|ionice|mamba|mpiexec|mpirun|nice|nohup|numactl|pdm|"
    r"podman|poetry|setsid|singularity|srun|stdbuf|strace|sudo|taskset|time|timeout|tini|unbuffer|uv|"
    r"xvfb-run"
)
"""Programs that run another program. The other program is shown instead, because it is more informative."""


def _split(words: Sequence[str], name: str) -> list[str]:
    """Return the words that are not empty. Split the string of a program that has rewritten its words."""
    found = [word for word in words[:_MAX_WORDS] if word.strip()]
    if len(found) == 1:
        found = found[0].split()
    elif found and len(found[0].split()) > 1 and not _is_path_to(found[0], name):
        found = [*found[0].split(), *found[1:]]
    return found[:_MAX_WORDS]


def _is_path_to(path: str, name: str) -> bool:
    """Return whether ``path`` is the path of the executable called ``name``. ``path`` may instead be a title
    that the program has set for itself (setproctitle)."""
    file = path.rpartition("/")[2]
    return bool(name) and file[:_SHORT_NAME] == name[:_SHORT_NAME]


def _program(executable: str, rest: Sequence[str]) -> str:
    """Return the program that a command line runs. ``rest`` has the words after the executable."""
    name = _file_name(executable)
    if _WRAPPERS.fullmatch(name):
        for position, word in enumerate(rest):
            if any(pattern.fullmatch(_file_name(word)) for pattern, _ in _INTERPRETERS):
                return _program(word, rest[position + 1 :])
    for pattern, parser in _INTERPRETERS:
        if pattern.fullmatch(name):
            return parser(name, rest)
    return name


# Each of the following functions returns an interpreter's name with its script or module. The second argument
# has the words after the interpreter.


def _python(name: str, rest: Sequence[str]) -> str:
    position = 0
    while position < len(rest):
        word = rest[position]
        if word == "-" or not word.startswith("-"):
            return f"{name} {_file_name(word) or '-'}"
        position += 1
        if word == "--check-hash-based-pycs":
            position += 1
        if word.startswith("--"):
            continue
        # Single-letter options may be combined, and a value may follow its letter directly: -um train,
        # -Wignore.
        at = next((n for n, letter in enumerate(word) if letter in _PYTHON_OPTIONS_WITH_VALUE), None)
        if at is None:
            continue
        if word[at] == "c":
            # Python's multiprocessing starts its processes with python -c and passes this option after the
            # code.
            return f"{name} (multiprocessing)" if "--multiprocessing-fork" in rest else f"{name} -c"
        value = word[at + 1 :]
        if not value:
            value = rest[position] if position < len(rest) else ""
            position += 1
        if word[at] == "m":
            module = f" {_visible(value)}" if _MODULE.fullmatch(value) else ""
            return f"{name} -m{module}"
    return name


def _shell(name: str, rest: Sequence[str]) -> str:
    position = 0
    while position < len(rest):
        word = rest[position]
        if not word.startswith(("-", "+")):
            return f"{name} {_file_name(word)}"
        # fish also runs the code of -C and --init-command.
        letters = word.lower() if name == "fish" else word
        if word.partition("=")[0] in ("--command", "--init-command") or (
            not word.startswith("--") and "c" in letters
        ):
            return f"{name} -c"
        if not word.startswith("--") and "s" in word:
            return name  # The script comes from the standard input, so the other words are its arguments.
        position += 2 if _SHELL_OPTION_WITH_VALUE.fullmatch(word) else 1
    return name


def _runner(name: str, rest: Sequence[str]) -> str:
    code_option = _PHP_CODE_OPTION if name.startswith("php") else _CODE_OPTION
    launcher = _LAUNCHERS.fullmatch(name) is not None
    for position, word in enumerate(rest):
        if (word.startswith("--") or not launcher) and code_option.fullmatch(word):
            return name  # A word after the code may look like a script.
        if launcher and word in ("-m", "--module") and _MODULE.fullmatch("".join(rest[position + 1 :][:1])):
            return f"{name} -m {_visible(rest[position + 1])}"
        if _SCRIPT.fullmatch(word):
            return f"{name} {_file_name(word)}"
    return name


_INTERPRETERS = ((_PYTHON, _python), (_SHELL, _shell), (_RUNNERS, _runner))
"""The names of interpreters, each with the function that parses the words after the name."""


def _file_name(word: str) -> str:
    """Return the last part of a path. Remove the dash that starts a login shell's name (``-bash``) and the
    colon that ends a title such as ``sshd:``."""
    name = word.rstrip("/").rpartition("/")[2].lstrip("-").rstrip(":")
    return _visible(name)


def _visible(name: str) -> str:
    """Return a word of the program's name without secrets."""
    return redact_text(name) if len(name) <= _MAX_WORD else REDACTED
