"""Tests of which text is redacted because it may be secret."""

from __future__ import annotations

import pytest

from gpuwidget.model.redaction import redact_text

HEX = "0123456789abcdef" * 2 + "01234567"
AWS_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # Variables and settings of a shell, a file or a connection.
        ("HF_TOKEN=SECRET; LD_PRELOAD=/a", "HF_TOKEN=[redacted]; LD_PRELOAD=/a"),
        ("export PGPASSWORD=SECRET LD_PRELOAD=/a", "export PGPASSWORD=[redacted] LD_PRELOAD=/a"),
        ("HF_TOKEN='SECRET SECRET'; A=1", "HF_TOKEN='[redacted]'; A=1"),
        ('$env:HF_TOKEN = "SECRET"', '$env:HF_TOKEN = "[redacted]"'),
        ("+trainer.api_key=SECRET model=gpt", "+trainer.api_key=[redacted] model=gpt"),
        ("api_key = SECRET\nmodel = gpt", "api_key = [redacted]\nmodel = gpt"),
        ("Server=a;Pwd=SECRET;Port=1", "Server=a;Pwd=[redacted];Port=1"),
        ("password: SECRET", "password: [redacted]"),
        ('db.password: "SECRET SECRET"', 'db.password: "[redacted]"'),
        ("API key: SECRET", "API key: [redacted]"),
        # Code.
        ('password="SECRET SECRET", b=2', 'password="[redacted]", b=2'),
        ("api_key = 'SECRET SECRET'", "api_key = '[redacted]'"),
        ("login(token='SECRET', new=True)", "login(token='[redacted]', new=True)"),
        ('def f(token: str = "SECRET", b=1)', 'def f(token: "[redacted]", b=1)'),
        ('os.environ["HF_TOKEN"] = "SECRET"', 'os.environ["HF_TOKEN"] = "[redacted]"'),
        ('token = """SECRET\nSECRET""" + b', 'token = """[redacted]""" + b'),
        ("token := 'SECRET'", "token := '[redacted]'"),
        ("b'token': b'SECRET'", "b'token': '[redacted]'"),
        # JSON and dictionaries, also in a string or cut off.
        ("{'token': 'SECRET', 'b': 1}", "{'token': '[redacted]', 'b': 1}"),
        ('{"lr": 1, "api_key": "SEC\\"RET"}', '{"lr": 1, "api_key": "[redacted]"}'),
        ('{"token":"SECRET","b":"c"}', '{"token":"[redacted]","b":"c"}'),
        (r"{\"password\":\"SECRET\",\"b\":1}", r"{\"password\":\"[redacted]\",\"b\":1}"),
        ('{"token": 123, "b": 2}', '{"token": [redacted], "b": 2}'),
        ("{'tokens': ['SECRET', 'SECRET'], 'b': 1}", "{'tokens': [redacted], 'b': 1}"),
        ('{"credentials": {"a": "SECRET"}, "b": 1}', '{"credentials": [redacted], "b": 1}'),
        ('{"token": "SECRET SECRET', '{"token": "[redacted]'),
        # Options of programs.
        ("run --api-key SECRET --lr 1", "run --api-key [redacted] --lr 1"),
        ("run --api-key 'SECRET SECRET' --lr 1", "run --api-key '[redacted]' --lr 1"),
        ("run '--api-key=SECRET' '--lr=1'", "run '--api-key=[redacted]' '--lr=1'"),
        ("--hfToken -SECRET", "--hfToken [redacted]"),
        ("-password SECRET --lr 1", "-password [redacted] --lr 1"),
        ("--auth --password SECRET", "--auth --password [redacted]"),
        ("java -Dpw=SECRET Main", "java -Dpw=[redacted] Main"),
        ("['pip', '--token', 'SECRET', 'x']", "['pip', '--token', '[redacted]', 'x']"),
        ("curl -u ada:SECRET http://host", "curl -u [redacted] http://host"),
        ("curl --user='ada:SECRET' http://host", "curl --user='[redacted]' http://host"),
        # HTTP headers.
        ("Authorization: Basic SECRET==", "Authorization: [redacted]"),
        ("curl -H 'Authorization: token SECRET' http://a", "curl -H 'Authorization: [redacted]' http://a"),
        ("{'Authorization': 'Basic SECRET', 'b': 'c'}", "{'Authorization': '[redacted]', 'b': 'c'}"),
        ("[('Authorization', 'Basic SECRET'), ('b', 'c')]", "[('Authorization', '[redacted]'), ('b', 'c')]"),
        (
            'Proxy-Authorization: Digest username="SECRET", response="SECRET"\nHost: a',
            "Proxy-Authorization: [redacted]\nHost: a",
        ),
        ("Cookie: a=SECRET; b=SECRET\r\nHost: a", "Cookie: [redacted]\nHost: a"),
        ("X-Api-Key: SECRET", "X-Api-Key: [redacted]"),
        ("use Bearer SECRET then", "use Bearer [redacted] then"),
        ("use Basic YWRhOlNFQ1JFVA== then", "use Basic [redacted] then"),
        # URLs.
        ("pip -i https://ada:SECRET@host/simple x", "pip -i https://[redacted]@host/simple x"),
        ("https://host/a?b=1&access_token=SECRET", "https://host/a?b=1&access_token=[redacted]"),
        # Tokens in well-known formats, anywhere in a word.
        (f"the token hf_{HEX} is wrong", "the token [redacted] is wrong"),
        (f"a/ghp_{HEX} x-sk-proj-{HEX}", "a/[redacted] x-[redacted]"),
        (f"{AWS_ID} {AWS_KEY} {HEX}", "[redacted] [redacted] [redacted]"),
        (f"login {'aB3' * 11}", "login [redacted]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "[redacted]"),
        ("-----BEGIN PRIVATE KEY-----\nSECRET", "[redacted]"),
    ],
)
def test_secrets_are_redacted(text: str, shown: str) -> None:
    """Values with the name of a secret are redacted, as a shell, code, JSON, options and HTTP headers write
    them, and so are credentials in URLs and tokens. The text around them stays. Redacting it again changes
    nothing."""
    assert redact_text(text) == shown
    assert redact_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'x'. The key: a basic check",
        "KeyError: 'token', line 3",
        "KeyboardInterrupt: x, AuthenticationError: y",
        "Basic Authentication is off: basic usage",
        "if token == other and key != 3: pass",
        "--max-new-tokens 512 --max_tokens=4 --tokenizer gpt2 --author ada --passes 3 --pin-memory 1",
        "torch==2.13.0, hf_datasets, sk-learn, a:b",
        "git+https://host:8080/a.git@v1",
        f"/opt/Mini3/{'a' * 29}: none",
        "GPU-01234567-89ab-cdef-0123-456789abcdef",
        "",
    ],
)
def test_other_text_stays(text: str) -> None:
    """Prose, code, options and addresses that only look similar to secrets are not redacted."""
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "a:" * 500_000, "token: long_value " * 50_000, "('" * 500_000, "\\" * 1_000_000]
)
def test_a_long_text(text: str) -> None:
    """A text of a megabyte is searched without a noticeable delay."""
    assert len(redact_text(text)) <= len(text)
