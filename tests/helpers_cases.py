"""Difficult cells, whose results and outputs must be the same with ``%%gpuwatch`` as without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SETUP = """
import asyncio, contextlib, functools, gc, inspect, io, logging, os, random, signal, sys, threading, time
import warnings
from IPython.display import HTML, clear_output, display
def waits():
    return os.path.exists('long') and not os.path.exists('go')
def pause():
    while waits(): time.sleep(0.01)
async def apause():
    while waits(): await asyncio.sleep(0.01)
class Steps:
    "An asynchronous iterator and context manager."
    def __init__(self, n): self.n, self.i = n, 0
    def __aiter__(self): return self
    async def __anext__(self):
        await asyncio.sleep(0)
        self.i += 1
        if self.i > self.n: raise StopAsyncIteration
        return self.i
    async def __aenter__(self): print("enter"); return self
    async def __aexit__(self, *_): print("exit")
number = 7
"""
"""Definitions that the cells use.
If a file named ``long`` exists, ``pause()`` waits until a file named ``go`` exists."""


@dataclass(frozen=True)
class Case:
    """A difficult cell, and the output that it must have."""

    name: str
    body: str
    shows: str = ""
    """Text that the unwatched cell must print, display or raise.
    It ensures that the case tests what its name promises."""
    plain: str | None = None
    """The code of the unwatched cell; by default, the body below a comment,
    which takes the place of the line with the magic."""
    watched: str | None = None
    """The code of the watched cell, with ``MAGIC`` in place of the line with the magic;
    by default, that line followed by the body."""
    cards: int = 1
    """The number of cards that the watched cell displays."""
    then: str = ""
    """An unwatched cell that both kernels run afterwards."""
    sending: dict[str, Any] | None = None
    """Options of the execute requests."""
    hidden: bool = False
    """Whether the live chart can't be shown while the cell pauses. This is so if an Output widget captures
    all messages, or if a pending clear_output(wait=True) would remove the other outputs."""

    @property
    def pauses(self) -> bool:
        """Whether the cell waits for the file ``go`` if there is a file ``long``."""
        return "pause()" in f"{self.body}{self.plain}" or "[ -e go ]" in self.body


RESULTS = [
    Case("last expression", "x = 6\npause()\nx * 7", "42", then="_, __, Out[max(Out)]"),
    Case("several results", "1\npause()\n2", "2", then="_"),
    Case("result is none", "pause()\nNone", then="len(Out), _"),
    Case("trailing semicolon", "pause()\n'kept quiet';", then="_, len(Out)"),
    Case("semicolon and comment", "pause()\n'kept quiet'; # yes", then="_, len(Out)"),
    Case("underscores", "pause()\n(_, __, ___, len(_oh))", "("),
    Case("assignment shows nothing", "pause()\ny = 3"),
    Case("multiline string as result", "pause()\n'''three\nlines\nhere'''", "three"),
    Case("assigned underscore", "_ = 'mine'\npause()\n_", "mine", then="del _\n_"),
    Case("execution count", "pause()\nget_ipython().execution_count, len(In), max(Out)", "("),
    Case("previous input", "pause()\nIn[-2], _i, _ih[-2] == In[-2]", "True"),
    Case("last result object", "pause()\nget_ipython().last_execution_result.success", "True"),
    Case("all expressions shown", "get_ipython().ast_node_interactivity = 'all'\npause()", ""),
    Case(
        "all expressions shown again",
        "1\npause()\n2\nget_ipython().ast_node_interactivity = 'last_expr'",
        "1",
    ),
    Case(
        "user expressions",
        "1\npause()\n2",
        "2",
        sending={"user_expressions": {"a": "1 + 1", "bad": "1 / 0", "last": "_"}},
    ),
]

ASYNCHRONOUS = [
    Case("await", "await apause()\n'awaited'", "awaited"),
    Case("async for", "async for i in Steps(3):\n    print(i)\npause()", "3"),
    Case("async with", "async with Steps(1) as s:\n    await apause()\n    print('in')", "exit"),
    Case("async comprehension", "pause()\n[i async for i in Steps(3)]", "[1, 2, 3]"),
    Case("gather", "await asyncio.gather(apause(), asyncio.sleep(0, 'b'))", "'b'"),
    Case("error after await", "await apause()\n1 / 0", "ZeroDivisionError"),
    Case(
        "error in a coroutine",
        "async def f():\n    await apause()\n    raise KeyError('k')\nawait f()",
        "KeyError",
    ),
    Case(
        "asyncio.run raises",
        "pause()\nc = Steps(1).__anext__()\ntry:\n    asyncio.run(c)\n"
        "except RuntimeError as e:\n    print(e)\nc.close()",
        "",
    ),
    Case(
        "task that outlives its line",
        "t = asyncio.create_task(asyncio.sleep(0, 'done'))\nawait apause()\nawait t",
        "done",
    ),
    Case("number of tasks", "await apause()\nlen(asyncio.all_tasks())"),
    Case(
        "async generator",
        "async def g():\n    yield 1\n    await apause()\n    yield 2\n[x async for x in g()]",
        "[1, 2]",
    ),
]

LINE_MAGICS = [
    Case("shell command", "!echo from the shell\npause()", "from the shell"),
    Case("shell command that fails", "!exit 3\npause()\n_exit_code", "3"),
    Case("shell command assigned", "found = !printf 'a\\nb\\n'\npause()\nfound", "['a', 'b']"),
    Case("shell command with a variable", "word = 'hello'\n!echo {word} $word\npause()", "hello hello"),
    Case("double shell", "!!echo twice\n", "twice"),
    Case("line magic", "%env GPUWIDGET_TRIED=1\npause()\n%env GPUWIDGET_TRIED", "1"),
    Case("line magic assigned", "where = %pwd\npause()\nwhere == os.getcwd()", "True"),
    Case("%time", "%time pause()\n", "Wall time"),
    Case("%time assigned", "n = %time 5\npause()\nn", "5"),
    Case("%time of an expression", "pause()\n%time 6 * 7", "42"),
    Case("%timeit", "%timeit -n1 -r1 pause()", "1 loop"),
    Case("%timeit object", "t = %timeit -o -q -n1 -r1 pause()\ntype(t).__name__", "TimeitResult"),
    Case(
        "%run",
        "open('ran.py', 'w').write('print(__name__)\\nfrom_file = 5\\n')\n%run ran.py\npause()",
        "__main__",
        then="from_file",
    ),
    Case("%run raises", "open('bad.py', 'w').write('\\n\\n1 / 0\\n')\npause()\n%run bad.py", "bad.py"),
    Case("%who", "pause()\n%who int str", "number"),
    Case("%who_ls", "pause()\nnames = %who_ls\nnames", "number"),
    Case("%whos", "pause()\n%whos int", "number"),
    Case("%xmode Plain", "%xmode Plain\npause()\n1 / 0", "ZeroDivisionError", then="%xmode Context"),
    Case("%xmode Verbose", "%xmode Verbose\nv = 3\npause()\nv / 0", "v", then="%xmode Context"),
    Case("%xmode Minimal", "%xmode Minimal\npause()\n1 / 0", "ZeroDivisionError", then="%xmode Context"),
    Case("%precision", "%precision 3\npause()\n3.14159265", "3.142", then="%precision"),
    Case("%pinfo", "%pinfo len", "", then="1"),
    Case("%alias", "%alias shout echo loud\npause()\n%shout", "loud", then="%unalias shout"),
    Case("unknown line magic", "pause()\n%nosuchmagic 1", "nosuchmagic"),
    Case("question mark", "len?"),
    Case("question mark after code", "pause()\nq = 1\nlen?"),
    Case("question mark before", "?len"),
    Case("two question marks", "len??"),
    Case("question mark unknown", "nosuchname?", "not found"),
    Case("question mark of a function of the cell", "def helped(a, b=2):\n    'Return a.'\nhelped?"),
    Case("source of a function of the cell", "def helped(a, b=2):\n    'Return a.'\n    return a\nhelped??"),
    Case("wildcard", "Ste*?", "Steps"),
]

MAGICS_BELOW = [
    Case("%%time", "%%time\npause()\n'timed'", "timed"),
    Case("%%time of statements", "%%time\npause()\nz = 3", "Wall time", then="z"),
    Case("%%time with an option-like body", "%%time\n-1", "-1"),
    Case("%%time raises", "%%time\npause()\n1 / 0", "ZeroDivisionError"),
    Case("%%time syntax error", "%%time\n1 +", "SyntaxError"),
    Case(
        "%%time after a blank line", "\n%%time\npause()\n'timed'", "timed", plain="%%time\npause()\n'timed'"
    ),
    Case(
        "%%time after blank lines and blanks",
        "\n   \n\n%%time\npause()\n'timed'",
        "timed",
        plain="%%time\npause()\n'timed'",
    ),
    Case("%%time after a comment", "# why\n%%time\n1", "%%time", plain="# gpuwatch\n# why\n%%time\n1"),
    Case("%%timeit", "%%timeit -n1 -r1\npause()", "1 loop"),
    Case("%%timeit with setup", "%%timeit -n1 -r1 w = 2\nassert w == 2\npause()", "1 loop"),
    Case(
        "%%capture",
        "%%capture caught\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(HTML('<b>b</b>'))\n"
        "pause()\n'result'",
        then="print(repr(caught.stdout), repr(caught.stderr))\n"
        "[sorted(output.data.items()) for output in caught.outputs]",
    ),
    Case(
        "%%capture with show()",
        "%%capture again\nprint('out')\npause()\ndisplay(HTML('<b>b</b>'))",
        then="again.show()",
    ),
    Case("%%capture without a name", "%%capture\nprint('gone')\npause()"),
    Case("%%capture raises", "%%capture lost\nprint('before')\npause()\n1 / 0", "ZeroDivisionError"),
    Case(
        "%%capture above %%time",
        "%%capture timed\n%%time\npause()\n5",
        then="len(timed.outputs), 'Wall time' in timed.stdout",
    ),
    Case("%%bash", "%%bash\necho one\nsleep 0\necho two", "two"),
    Case("%%bash fails", "%%bash\necho one\nexit 4", "4"),
    Case(
        "%%bash for long",
        "%%bash\necho one\nif [ -e long ]; then until [ -e go ]; do sleep 0.02; done; fi\necho two",
        "two",
    ),
    Case("%%sh", "%%sh\necho sh", "sh"),
    Case("%%sx", "%%sx\necho a\necho b", "['a', 'b']"),
    Case("%%!", "%%!\necho a", "['a']"),
    Case("%%script", "%%script cat\nas it is\n  indented", "  indented"),
    Case("%%script --out", "%%script --out kept cat\nheld", then="kept"),
    Case("%%html", "%%html\n<i>html</i>", "<i>html</i>"),
    Case("%%javascript", "%%javascript\n1 + 1", "1 + 1"),
    Case("%%markdown", "%%markdown\n# title", "# title"),
    Case("%%latex", "%%latex\n$x$", "$x$"),
    Case("%%svg", "%%svg\n<svg xmlns='http://www.w3.org/2000/svg'></svg>", "svg"),
    Case(
        "%%writefile",
        "%%writefile written.txt\nfirst\n\n  second\n",
        "written.txt",
        then="open('written.txt').read()",
    ),
    Case(
        "%%writefile of a magic",
        "%%writefile kept.txt\n%%gpuwatch\n!ls\n",
        "kept.txt",
        then="open('kept.txt').read()",
    ),
    Case("%%python", "%%python3\nprint('elsewhere')", "elsewhere"),
    Case("%%prun quiet", "%%prun -q -r\n1", "", then="1"),
    Case("unknown cell magic", "%%nosuchmagic\n1", "nosuchmagic"),
    Case("%%time without a body", "%%time\n"),
    Case("%%time?", "%%time?", ""),
]

MAGICS_ABOVE = [
    Case(
        "below %%time",
        "",
        "42",
        plain="%%time\n# gpuwatch\npause()\n6 * 7",
        watched="%%time\nMAGIC\npause()\n6 * 7",
    ),
    Case(
        "below %%time, statements",
        "",
        "Wall time",
        plain="%%time\n# gpuwatch\npause()\nk = 4",
        watched="%%time\nMAGIC\npause()\nk = 4",
        then="k",
    ),
    Case(
        "between two magics",
        "",
        "Wall time",
        plain="%%time\n%%capture between\npause()\nprint('in')",
        watched="%%time\nMAGIC\n%%capture between\npause()\nprint('in')",
        then="between.stdout",
    ),
    Case(
        "below %%time raises",
        "",
        "ZeroDivisionError",
        plain="%%time\n# gpuwatch\n1 / 0",
        watched="%%time\nMAGIC\n1 / 0",
    ),
]

SHAPES = [
    Case(
        "blank lines above",
        "",
        "42",
        plain="\n\n# gpuwatch\npause()\n6 * 7",
        watched="\n\nMAGIC\npause()\n6 * 7",
    ),
    Case(
        "blanks above",
        "",
        "42",
        plain="  \n\t\n# gpuwatch\npause()\n6 * 7",
        watched="  \n\t\nMAGIC\npause()\n6 * 7",
    ),
    Case(
        "error after blank lines above",
        "",
        "ZeroDivisionError",
        plain="\n\n# gpuwatch\npause()\n1 / 0",
        watched="\n\nMAGIC\npause()\n1 / 0",
    ),
    Case("blanks after the magic", "", "42", plain="# gpuwatch\n6 * 7", watched="MAGIC   \t\n6 * 7"),
    Case("blank lines below", "\n\n\npause()\n6 * 7", "42"),
    Case("error after blank lines below", "\n\n\npause()\n1 / 0", "ZeroDivisionError"),
    Case(
        "indented body",
        "",
        "42",
        plain="    # gpuwatch\n    pause()\n    6 * 7",
        watched="MAGIC\n    pause()\n    6 * 7",
    ),
    Case(
        "indented body raises",
        "",
        "ZeroDivisionError",
        plain="    # gpuwatch\n    pause()\n    1 / 0",
        watched="MAGIC\n    pause()\n    1 / 0",
    ),
    Case(
        "indented with tabs",
        "",
        "42",
        plain="\t# gpuwatch\n\tpause()\n\t6 * 7",
        watched="MAGIC\n\tpause()\n\t6 * 7",
    ),
    Case(
        "indented with a block",
        "",
        "in",
        plain="  # gpuwatch\n  if True:\n    print('in')\n  pause()",
        watched="MAGIC\n  if True:\n    print('in')\n  pause()",
    ),
    Case("doctest prompts", ">>> pause()\n>>> 6 * 7", "42", plain=">>> pause()\n>>> 6 * 7"),
    Case("numbered prompts", "In [1]: pause()\nIn [2]: 6 * 7", "42", plain="In [1]: pause()\nIn [2]: 6 * 7"),
    Case("comments first", "# one\n# two\npause()\n6 * 7", "42"),
    Case("comments only", "# nothing\n# at all"),
    Case("empty body", "", plain="# gpuwatch"),
    Case("empty body with a newline", "\n", plain="# gpuwatch\n"),
    Case("blanks only", "   \n\t\n"),
    Case("pass", "pass"),
    Case("unclosed string", "s = '''abc\n", "SyntaxError"),
    Case("string with the magic in it", "s = '''\n%%gpuwatch\n!ls\n'''\npause()\ns", "gpuwatch"),
    Case("continuation", "c = 1 + \\\n    2\npause()\nc", "3"),
    Case("carriage returns", "a = 1\r\npause()\r\na + 1\r\n", "2"),
    Case("unicode", "größe = 'Ω≈ç√ 🚀 \u202e'\npause()\nprint(größe)\ngröße", "🚀"),
    Case("coding line", "# -*- coding: utf-8 -*-\npause()\n'ä'", "ä"),
    Case("docstring first", "'''Return a result.'''\npause()\n1", "1"),
    Case(
        "magic not on the first line",
        "",
        "gpuwatch",
        plain="x = 1\n%%gpuwatch\n1",
        watched="x = 1\n%%gpuwatch\n1",
        cards=0,
    ),
]

ERRORS = [
    Case("error", "pause()\n1 / 0", "ZeroDivisionError", then="sys.last_type.__name__, str(sys.last_value)"),
    Case(
        "error on a later line", "a = 1\n\n\nb = 2\npause()\n1 / 0\nc = 3", "ZeroDivisionError", then="a, b"
    ),
    Case(
        "error in a function of the cell",
        "def deep(n):\n    if n == 0:\n        raise ValueError('deep')\n    deep(n - 1)\npause()\ndeep(3)",
        "deep",
    ),
    Case(
        "error in a function, called by a later cell",
        "def later():\n    'Fails.'\n    return [][1]\n"
        "class Later:\n    def method(self):\n        return later()\npause()",
        then="Later().method()",
    ),
    Case(
        "chained errors",
        "try:\n    {}['k']\nexcept KeyError as e:\n    pause()\n    raise ValueError('second') from e",
        "direct cause",
    ),
    Case(
        "error while handling one",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pause()\n    [][3]",
        "another exception",
    ),
    Case(
        "recursion",
        "limit = sys.getrecursionlimit()\nsys.setrecursionlimit(len(inspect.stack()) + 300)\n"
        "def r(n):\n    return r(n + 1)\npause()\nr(0)",
        "RecursionError",
        then="sys.setrecursionlimit(limit)",
    ),
    Case("assert", "pause()\nassert 1 == 2, 'no'", "AssertionError"),
    Case(
        "custom traceback",
        "class Mine(Exception):\n    def _render_traceback_(self):\n"
        "        return ['mine', 'indeed']\npause()\nraise Mine()",
        "indeed",
    ),
    Case(
        "exception with notes",
        "e = ValueError('v')\ngetattr(e, 'add_note', lambda _: 0)('a note')\npause()\nraise e",
        "ValueError",
    ),
    Case("stop iteration", "pause()\nnext(iter([]))", "StopIteration"),
    Case("stop iteration after await", "await apause()\nraise StopIteration(3)", ""),
    Case(
        "error in a generator",
        "def g():\n    yield 1\n    raise OSError(2, 'gone')\npause()\nlist(g())",
        "gone",
    ),
    Case("generator exit", "pause()\nraise GeneratorExit('g')", "GeneratorExit"),
    Case("keyboard interrupt raised", "pause()\nraise KeyboardInterrupt", "KeyboardInterrupt"),
    Case("CancelledError", "await apause()\nraise asyncio.CancelledError", "Cancelled"),
    Case("sys.exit", "print('before')\npause()\nsys.exit(3)", "SystemExit"),
    Case("sys.exit without a status", "pause()\nsys.exit()", "SystemExit"),
    Case("system exit raised", "pause()\nraise SystemExit('bye')", "bye"),
    Case("syntax error", "a = 1\nfor", "SyntaxError"),
    Case("syntax error by the compiler", "a = 1\nreturn a", "SyntaxError"),
    Case("indentation error", "if True:\nprint(1)", "IndentationError"),
    Case("tab error", "if True:\n        a = 1\n\tb = 2", "Error"),
    Case("warnings", "pause()\nwarnings.warn('careful')", "careful"),
    Case("deprecated escape", "s = '\\d'\npause()"),
    Case(
        "error in __repr__",
        "class Bad:\n    def __repr__(self):\n        raise RuntimeError('no repr')\npause()\nBad()",
        "no repr",
    ),
    Case(
        "error in _repr_html_",
        "class Bad2:\n    def __repr__(self):\n        return 'plain'\n"
        "    def _repr_html_(self):\n        raise RuntimeError('no html')\npause()\nBad2()",
        "no html",
    ),
    Case(
        "error in a thread",
        "t = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()\npause()",
    ),
    Case(
        "showtraceback",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pause()\n    get_ipython().showtraceback()",
        "ZeroDivisionError",
    ),
    Case(
        "error with store_history=False",
        "pause()\n1 / 0",
        "ZeroDivisionError",
        sending={"store_history": False},
    ),
    Case(
        "sys.last_traceback",
        "pause()\n{}['missing']",
        "KeyError",
        then="import traceback\n[f.lineno for f in traceback.extract_tb(sys.last_traceback)][-1], "
        "get_ipython().last_execution_succeeded",
    ),
]

OUTPUTS = [
    Case(
        "partial lines",
        "print('a', end='')\npause()\nprint('b', end='')\nprint('c', end='', flush=True)",
        "c",
    ),
    Case(
        "progress bar",
        "for i in range(11):\n    print(f'\\r{i * 10:3d} %', end='', flush=True)\n    if i == 5: pause()\n",
        "100 %",
    ),
    Case(
        "progress bar on stderr",
        "for i in range(11):\n    sys.stderr.write(f'\\r{i * 10:3d} %')\n"
        "    sys.stderr.flush()\n    if i == 5: pause()\n",
        "100 %",
    ),
    Case("many lines", "for i in range(20000):\n    print(i)\npause()", "19999"),
    Case("a very long line", "pause()\nprint('on and ' * 50000)", "on and on"),
    Case(
        "flush and both streams",
        "print('o', flush=True)\nprint('e', file=sys.stderr, flush=True)\npause()\nprint('o2')",
        "o2",
    ),
    Case(
        "logging", "logging.getLogger('t').warning('logged %s', 1)\npause()\nlogging.root.handlers", "logged"
    ),
    Case("result of write", "n = sys.stdout.write('abc\\n')\npause()\nn", "4"),
    Case("write of bytes", "pause()\nsys.stdout.write(b'abc')", "TypeError"),
    Case("writelines", "sys.stdout.writelines(['a\\n', 'b\\n'])\npause()", "b"),
    Case(
        "subprocess",
        "import subprocess\npause()\n"
        "subprocess.run(['echo', 'child'], check=True, capture_output=True).stdout",
        "child",
    ),
    Case(
        "print in threads",
        "def say(i):\n    print('thread', i)\nfor i in range(5):\n"
        "    t = threading.Thread(target=say, args=(i,))\n    t.start()\n    t.join()\npause()",
        "thread 4",
    ),
    Case(
        "display in a thread",
        "t = threading.Thread(target=lambda: display(HTML('<b>t</b>')))\nt.start()\nt.join()\npause()",
    ),
    Case(
        "redirect_stdout",
        "box = io.StringIO()\nwith contextlib.redirect_stdout(box):\n    print('boxed')\n"
        "    pause()\nprint('free')\nbox.getvalue()",
        "boxed",
    ),
    Case(
        "stdout replaced",
        "old = sys.stdout\nsys.stdout = io.StringIO()\nprint('hidden')\npause()\n"
        "text = sys.stdout.getvalue()\nsys.stdout = old\ntext",
        "hidden",
    ),
    Case(
        "stdout left replaced",
        "old = sys.stdout\nsys.stdout = box = io.StringIO()\nprint('hidden')\npause()",
        then="sys.stdout = old\nprint(box.getvalue())",
    ),
    Case(
        "write replaced",
        "kept = sys.stdout.write\nsys.stdout.write = lambda s: kept(s.upper())\n"
        "print('loud')\npause()\nsys.stdout.write = kept\nprint('soft')\ndel sys.stdout.write",
        "LOUD",
        then="print('as ever')\n'write' in vars(sys.stdout)",
    ),
    Case(
        "write left replaced",
        "kept = sys.stdout.write\nsys.stdout.write = lambda s: kept(s.upper())\nprint('loud')\npause()",
        "LOUD",
        then="print('still')\ndel sys.stdout.write\nprint('soft')",
    ),
    Case(
        "stdout's attributes",
        "pause()\ntype(sys.stdout).__name__, sys.stdout.encoding, sys.stdout.isatty(), "
        "sys.stdout.fileno() > 2 or sys.stdout.fileno()",
        "OutStream",
    ),
    Case(
        "stdout afterwards",
        "print('x')\npause()",
        "x",
        then="sorted(vars(sys.stdout)), sorted(vars(sys.stderr))",
    ),
    Case("print as a result", "pause()\nprint", "print"),
    Case("display", "display(1, 'two')\npause()\ndisplay(HTML('<b>3</b>'))", "two"),
    Case(
        "display several kinds",
        "class Rich:\n    def __repr__(self): return 'rich'\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_svg_(self): return '<svg/>'\n    def _repr_json_(self): return {'a': 1}\n"
        "pause()\nRich()",
        "<b>rich</b>",
    ),
    Case(
        "mimebundle",
        "class Bundle:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'text/plain': 'p', 'application/x-own': 1}, {'m': 2}\npause()\nBundle()",
        "x-own",
    ),
    Case(
        "_ipython_display_",
        "class Own:\n    def _ipython_display_(self): print('own way')\npause()\nOwn()",
        "own way",
    ),
    Case(
        "display updated",
        "h = display('old', display_id='fixed')\npause()\nh.update('new')",
        "new",
        then="h.update('newer')",
    ),
    Case("random display id", "h = display('old', display_id=True)\npause()\nh.update('new')", "new"),
    Case("clear_output", "print('old')\npause()\nclear_output()\nprint('new')", "new"),
    Case("clear_output last", "print('old')\npause()\nclear_output()"),
    Case("clear_output(wait)", "print('old')\nclear_output(wait=True)\npause()\nprint('new')", "new"),
    Case("clear_output(wait) last", "print('old')\npause()\nclear_output(wait=True)"),
    Case(
        "clear_output in a loop",
        "for i in range(4):\n    clear_output(wait=True)\n    print('step', i)\n    if i == 2: pause()\n",
        "step 3",
    ),
    Case(
        "clear_output then error",
        "print('old')\npause()\nclear_output(wait=True)\n1 / 0",
        "ZeroDivisionError",
    ),
    Case("clear_output then quiet result", "print('old')\nclear_output(wait=True)\npause()\n'res';"),
    Case("clear_output then nothing", "print('old')\nclear_output(wait=True)\npause()\nprint(end='')"),
    Case(
        "clear_output then stderr",
        "print('old')\nclear_output(wait=True)\npause()\nsys.stderr.write('e')",
        "e",
    ),
    Case(
        "clear_output then an update",
        "h = display('old', display_id=True)\nclear_output(wait=True)\npause()\nh.update('new')",
        "new",
    ),
    Case(
        "clear_output then publish",
        "from IPython.display import publish_display_data\nprint('old')\nclear_output(wait=True)\npause()\n"
        "publish_display_data({'text/plain': 'published'})",
        "published",
    ),
    Case(
        "clear_output twice",
        "print('old')\nclear_output(wait=True)\npause()\nclear_output()\nprint('new')",
        "new",
    ),
    Case(
        "clear_output(wait) after clear_output",
        "print('old')\nclear_output()\nprint('new')\nclear_output(wait=True)\npause()",
        "new",
        hidden=True,
    ),
    Case(
        "clear_output without stdout",
        "print('text')\nkept, sys.stdout = sys.stdout, None\ntry:\n    clear_output(wait=True)\n"
        "except AttributeError as error:\n    sys.stdout = kept\n    print(error)",
        "flush",
    ),
    Case(
        "clear_output with a closed stdout",
        "print('text')\nclosed = open(os.devnull, 'w')\nclosed.close()\ntry:\n"
        "    with contextlib.redirect_stdout(closed): clear_output(wait=True)\n"
        "except ValueError as error:\n    print(error)",
        "closed file",
    ),
    Case(
        "clear_output with a stdout that raises",
        "class Broken(io.StringIO):\n    def flush(self): raise OSError('no space left')\n"
        "print('text')\ntry:\n    with contextlib.redirect_stdout(Broken()): clear_output(wait=True)\n"
        "except OSError as error:\n    print(error)",
        "no space left",
    ),
    Case(
        "clear_output with stdout in a string",
        "print('old', flush=True)\nwith contextlib.redirect_stdout(io.StringIO()) as kept:\n    print('in')\n"
        "    clear_output(wait=True)\nprint(kept.getvalue())",
        "in",
    ),
    Case("clear_output(wait) alone", "clear_output(wait=True)\npause()"),
    Case(
        "clear_output(True) of the display publisher",
        "print('old')\nget_ipython().display_pub.clear_output(True)\npause()",
        "old",
    ),
    Case("display(clear=True)", "print('old')\npause()\ndisplay('new', clear=True)", "new"),
    Case("clear_output then result", "print('old')\nclear_output(wait=True)\npause()\n'res'", "res"),
    Case(
        "capture_output",
        "from IPython.utils.capture import capture_output\nwith capture_output() as c:\n"
        "    print('in')\n    display(1)\n    pause()\nc.stdout, len(c.outputs)",
        "in",
    ),
]

INPUT_REQUESTS = [
    Case(
        "input",
        "name = input('who? ')\npause()\nprint('hello', name)",
        "hello Ada",
        sending={"answers": ["Ada"]},
    ),
    Case(
        "getpass",
        "import getpass\nsecret = getpass.getpass('key: ')\npause()\nlen(secret)",
        "3",
        sending={"answers": ["abc"]},
    ),
    Case(
        "input not allowed",
        "pause()\ninput('who? ')",
        "StdinNotImplementedError",
        sending={"allow_stdin": False},
        hidden=True,
    ),
]

WIDGETS = [
    Case("widget", "import ipywidgets\nslider = ipywidgets.IntSlider(3)\npause()\nslider", "widget-view"),
    Case("widget changed", "slider.value = 5\npause()\nslider.value = 6\nslider.value", "6"),
    Case(
        "output widget",
        "out = ipywidgets.Output()\ndisplay(out)\nwith out:\n    print('inside')\n    pause()\n"
        "    print('still inside')\n    display('and this')\nprint('outside')",
        "outside",
        hidden=True,
    ),
    Case(
        "output widget to the end",
        "out2 = ipywidgets.Output()\ndisplay(out2)\nwith out2:\n    print('inside')\n    pause()",
        "widget-view",
        hidden=True,
    ),
    Case(
        "output widget clears",
        "with out:\n    clear_output(wait=True)\n    pause()\n    print('again')",
        hidden=True,
    ),
    Case("error in an output widget", "with out:\n    pause()\n    1 / 0", hidden=True),
    Case(
        "output widget as decorator",
        "@out.capture()\ndef captured():\n    print('captured')\n    pause()\ncaptured()",
        hidden=True,
    ),
    Case("append_stdout of an output widget", "out.append_stdout('more')\npause()"),
    Case("interact", "ipywidgets.interact(lambda x: print('x is', x), x=(0, 10));pause()", "widget-view"),
    Case("widget closed", "slider.close()\npause()"),
    Case(
        "progress widget",
        "bar = ipywidgets.IntProgress(max=3)\ndisplay(bar)\nfor i in range(3):\n"
        "    bar.value = i + 1\n    if i == 1: pause()",
        "widget-view",
    ),
]

NESTED_CELLS = [
    Case("runs a cell", "r = get_ipython().run_cell('n = 4\\nn * 2')\npause()\nr.result", "8"),
    Case(
        "runs a cell that fails",
        "r = get_ipython().run_cell('1 / 0')\npause()\ntype(r.error_in_exec).__name__",
        "ZeroDivisionError",
    ),
    Case(
        "runs a watched cell",
        "",
        "8",
        plain="# gpuwatch\nr = get_ipython().run_cell('# gpuwatch\\nn = 4\\nn * 2')\npause()\nr.result",
        watched="MAGIC\nr = get_ipython().run_cell('MAGIC\\nn = 4\\nn * 2')\npause()\nr.result",
        cards=2,
    ),
    Case(
        "unwatched cell runs a watched cell",
        "",
        "8",
        plain="r = get_ipython().run_cell('# gpuwatch\\nn = 4\\npause()\\nn * 2')\nr.result",
        watched="r = get_ipython().run_cell('MAGIC\\nn = 4\\npause()\\nn * 2')\nr.result",
    ),
    Case(
        "runs a watched cell that fails",
        "",
        "ZeroDivisionError",
        plain="# gpuwatch\nr = get_ipython().run_cell('# gpuwatch\\n1 / 0')\npause()\nr.success",
        watched="MAGIC\nr = get_ipython().run_cell('MAGIC\\n1 / 0')\npause()\nr.success",
        cards=2,
    ),
    Case("runs a line magic", "get_ipython().run_line_magic('env', 'GPUWIDGET_TRIED')\npause()", ""),
    Case("runs a cell magic", "get_ipython().run_cell_magic('time', '', 'm = 9\\nm')\npause()", "Wall time"),
    Case("ex and ev", "get_ipython().ex('p = 3')\npause()\nget_ipython().ev('p + 1')", "4"),
    Case("exec", "exec('ex1 = 5\\nprint(ex1)')\npause()\neval('ex1 + 1')", "6"),
    Case("error in exec", "pause()\nexec('1 / 0')", "ZeroDivisionError"),
    Case("getoutput", "pause()\nget_ipython().getoutput('echo got')", "got"),
]

INTERPRETER = [
    Case(
        "getsource of a function",
        "def sourced(a):\n    # inside\n    return a\npause()\n"
        "print(inspect.getsource(sourced), inspect.getsourcelines(sourced)[1])",
        "# inside",
    ),
    Case(
        "getsource of a class",
        "class Sourced:\n    def method(self):\n        return 1\npause()\n"
        "print(inspect.getsource(Sourced.method))",
        "def method",
    ),
    Case(
        "getsource from a later cell",
        "def sourced2(a):\n    return a\npause()",
        then="print(inspect.getsource(sourced2), inspect.getsourcelines(sourced2)[1])",
    ),
    Case(
        "globals are the user's",
        "pause()\nglobals() is get_ipython().user_ns, __name__, '__file__' in globals()",
        "'__main__'",
    ),
    Case("names", "pause()\nsorted(n for n in globals() if not n.startswith('_i'))", "number"),
    Case(
        "hidden names",
        "pause()\n[n for n in sorted(get_ipython().user_ns_hidden) if n[0] != '_']",
        "get_ipython",
    ),
    Case(
        "depth of the stack", "pause()\nlen(inspect.stack()), [f.function for f in inspect.stack()][:3]", "<"
    ),
    Case(
        "thread",
        "pause()\nthreading.current_thread() is threading.main_thread(), threading.current_thread().name",
        "True",
    ),
    Case("signal handlers", "pause()\nsignal.getsignal(signal.SIGINT).__name__, signal.getitimer(0)", ""),
    Case(
        "interpreter's settings",
        "pause()\nsys.gettrace(), sys.getprofile(), sys.getswitchinterval(), "
        "sys.getrecursionlimit(), sys.excepthook.__name__, gc.isenabled(), gc.get_threshold(), "
        "len(gc.callbacks)",
        "None",
    ),
    Case(
        "hooks",
        "pause()\ntype(sys.displayhook).__name__, type(get_ipython().display_pub).__name__, "
        "type(get_ipython().displayhook).__name__",
        "ZMQ",
    ),
    Case(
        "environment", "pause()\nsorted(set(os.environ)), os.getcwd() == os.path.realpath('.')", "GPUWIDGET"
    ),
    Case("warnings' filters", "pause()\nwarnings.showwarning.__module__, 'careful' in str(warnings.filters)"),
    Case("random numbers", "random.seed(7)\npause()\nrandom.random()", "0.", then="random.random()"),
    Case("open files", "pause()\nsys.stdin.closed, sys.__stdout__ is sys.stdout"),
    Case(
        "heavy packages",
        "pause()\n'torch' in sys.modules, 'pandas' in sys.modules and 'bqplot' not in sys.modules",
        "False",
    ),
    Case(
        "finalizer runs at once",
        "class D:\n    def __del__(self): print('gone')\nd = D()\ndel d\nprint('after')\npause()",
        "gone\\nafter",
    ),
    Case(
        "object lifetime",
        "import weakref\nclass W: pass\nw = W()\nr = weakref.ref(w)\npause()",
        then="del w\nr() is None",
    ),
    Case(
        "context variables",
        "import contextvars\ncv = contextvars.ContextVar('cv')\ncv.set(3)\npause()\ncv.get()",
        "3",
        then="cv.get('unset')",
    ),
    Case(
        "settrace",
        "lines = []\ndef tracer(frame, event, arg):\n"
        "    if frame.f_code.co_name == 'traced': lines.append(event)\n    return tracer\n"
        "def traced():\n    pause()\nsys.settrace(tracer)\ntraced()\nsys.settrace(None)\nlines",
        "call",
    ),
    Case("many statements", "\n".join(f"v{i} = {i}" for i in range(300)) + "\npause()\nv299", "299"),
    Case(
        "classes and decorators",
        "@functools.lru_cache(None)\ndef fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)\npause()\nfib(50)",
        "12586269025",
    ),
    Case("global statement", "g0 = 0\ndef bump():\n    global g0\n    g0 += 1\nbump()\npause()\ng0", "1"),
    Case("walrus", "if (n := 10) > 5:\n    print(n)\npause()", "10"),
    Case("lambda and comprehension scope", "k = 3\npause()\n[(lambda: k)() for _ in range(2)]", "[3, 3]"),
    Case(
        "pickle",
        "import pickle\nclass P:\n    pass\npause()\ntype(pickle.loads(pickle.dumps(P()))).__name__",
        "'P'",
    ),
    Case(
        "user's callbacks",
        "def seen_pre(info):\n    print('pre', len(info.raw_cell.splitlines()[-1]))\n"
        "def seen_post(result):\n    print('post', result.success)\n"
        "get_ipython().events.register('pre_run_cell', seen_pre)\n"
        "get_ipython().events.register('post_run_cell', seen_post)\npause()",
        "post True",
    ),
    Case(
        "user's callbacks in the next cell",
        "pause()\n'x'",
        "pre",
        then="get_ipython().events.unregister('pre_run_cell', seen_pre)\n"
        "get_ipython().events.unregister('post_run_cell', seen_post)",
    ),
    Case(
        "user's transformer",
        "def shout(lines):\n    return [line.replace('quiet', 'LOUD') for line in lines]\n"
        "get_ipython().input_transformers_post.append(shout)\npause()",
        then="print('quiet')",
    ),
    Case(
        "user's transformer in the next cell",
        "print('quiet')\npause()",
        "LOUD",
        then="get_ipython().input_transformers_post.remove(shout)",
    ),
    Case(
        "store_history=False", "pause()\n'unstored'", "unstored", sending={"store_history": False}, then="_"
    ),
    Case("silent", "print('silent')\npause()\n5", sending={"silent": True}, cards=0),
    Case(
        "user expressions after an error",
        "pause()\n1 / 0",
        "ZeroDivisionError",
        sending={"user_expressions": {"a": "1"}},
    ),
    Case(
        "error without stop_on_error", "pause()\n1 / 0", "ZeroDivisionError", sending={"stop_on_error": False}
    ),
    Case("%tb", "pause()\n%tb", "ZeroDivisionError"),
    Case("rerun with run_cell", "get_ipython().run_cell(In[-2])\npause()"),
    Case("%reset_selective", "gone = 1\n%reset_selective -f ^gone$\npause()\n'gone' in globals()", "False"),
    Case(
        "repr of a namespace", "import types\nns = types.SimpleNamespace(a=1)\npause()\nns", "namespace(a=1)"
    ),
]

FUTURE = [
    Case(
        "from __future__",
        "from __future__ import annotations\ndef f(x: nowhere): return 1\npause()\nf.__annotations__",
        "nowhere",
    ),
    Case(
        "from __future__ after a docstring",
        "'''doc'''\nfrom __future__ import division\npause()\n1 / 2",
        "0.5",
    ),
]
"""Cases that affect all later cells of the kernel, so they run last."""

BRIEF = [*RESULTS, *ASYNCHRONOUS, *LINE_MAGICS, *MAGICS_BELOW, *MAGICS_ABOVE, *SHAPES, *ERRORS, *OUTPUTS]
BRIEF += [*INPUT_REQUESTS, *WIDGETS, *NESTED_CELLS, *INTERPRETER, *FUTURE]
"""All cases, for runs that end before a live chart is visible."""
LONG = [*RESULTS[:4], *ASYNCHRONOUS, *LINE_MAGICS[:6], *MAGICS_BELOW, *MAGICS_ABOVE, *ERRORS[:12], *OUTPUTS]
LONG = [
    case for case in [*LONG, *INPUT_REQUESTS[:-1], *WIDGETS, *NESTED_CELLS, *INTERPRETER[:12]] if case.pauses
]
"""The cases that can wait until a live chart is visible. Where input is not allowed, there is no chart."""
