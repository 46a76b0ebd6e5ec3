"""Messages made from records: their parameters, the formats of these, and the calls in the package."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from gpuwidget.model.messages import Message, MessageId, Sentences, Template
from gpuwidget.model.translation import restore_texts, text_sources, translatable, with_english
from tools import translation

MORE = translatable("{number} more", number=3)


@pytest.mark.parametrize(
    ("template", "params", "text"),
    [
        ("{size:memory} of {total}", {"size": 3 * 1024**3, "total": 7}, "3.0 GiB of 7"),
        ("{seconds:.1f} s, {share:percent}", {"seconds": 1.26, "share": 41.0}, "1.3 s, 41 %"),
        ("{number:gpus} {number:was|were} lost", {"number": 1}, "1 GPU was lost"),
        ("{number:gpus} {number:was|were} lost", {"number": 2}, "2 GPUs were lost"),
        ("{gpus:and} {gpus:was|were} lost", {"gpus": ["GPU 0"]}, "GPU 0 was lost"),
        ("{gpus:and} {gpus:was|were} lost", {"gpus": ["0", "1", "2"]}, "0, 1 and 2 were lost"),
        ("{number} {number:task|tasks}", {"number": 1.5}, "1.5 tasks"),
        ("({names:list})", {"names": ["a", MORE]}, "(a, 3 more)"),
    ],
)
def test_a_template_formats_its_parameters(template: str, params: dict[str, Any], text: str) -> None:
    """The message keeps the values, and its text shows them with units and as lists."""
    message = Template("some-id", template)(**params)
    assert (message, message.id, message.message_id) == (text, "some-id", MessageId("some-id", params))
    assert restore_texts([str(message)], text_sources([message])) == [text]


def test_the_first_text_whose_parameters_are_known() -> None:
    """A template with several texts doesn't mention what is unknown, and values may be only for the text."""
    template = Template("lost", ("lost at {at}: {error}", "lost: {error}"))
    assert template(at=None, error="no power") == "lost: no power"
    shown = template(at=5, shown={"error": "no power"})
    assert (shown, shown.message_id.params) == ("lost at 5: no power", {"at": 5})


def test_a_message_keeps_its_id() -> None:
    """A message that is shortened, copied or pickled keeps its id, its parameters and its translation."""
    message = Template("lost", "{gpu} was lost")(gpu="GPU 0")
    for same in (with_english(message, "GPU 0"), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert isinstance(same, Message)
        assert (same.message_id, same.template, same.params) == (
            MessageId("lost", {"gpu": "GPU 0"}),
            "{gpu} was lost",
            {"gpu": "GPU 0"},
        )


def test_a_sentence_without_its_parameters_is_left_out() -> None:
    """A text doesn't mention what is unknown, and each of its sentences may be worded in several ways."""
    text = Sentences("{gpu} was lost.", ("It used {watts} W.", "It used {size:memory}."), "Why: {why}.")
    assert text(gpu="GPU 0", watts=None, size=3 * 1024**3, why=None) == "GPU 0 was lost. It used 3.0 GiB."
    assert text(gpu="GPU 0", watts=4, size=5, why="heat") == "GPU 0 was lost. It used 4 W. Why: heat."
    assert text(gpu="GPU 0", watts=None, size=None, why=None) == "GPU 0 was lost."


def test_the_calls_of_the_package_pass_all_parameters() -> None:
    """No message of the package is made without a value that its template shows."""
    assert translation.wrong_calls() == []


def test_a_call_without_a_parameter_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check names each call that lacks a parameter, also of the one or the other record."""
    (tmp_path / "gpuwidget").mkdir()
    (tmp_path / "gpuwidget" / "a.py").write_text(
        """
SURE = Sentences("{gpu} waits.", ("It drew {power}.", "It drew nothing."))
UNSURE = Sentences("{gpu} may wait for {other}.")
SURE(gpu=1, power=2)
SURE(gpu=1)
(SURE if sure else UNSURE)(gpu=1, power=2)
"""
    )
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    assert translation.wrong_calls() == [
        "gpuwidget.a:5: SURE(gpu=1) does not pass power.",
        "gpuwidget.a:6: (SURE if sure else UNSURE)(gpu=1, power=2) does not pass other.",
    ]


def test_a_call_without_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of an issue needs the values of the issue's own fix, too, unless it passes another fix."""
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    (tmp_path / "gpuwidget").mkdir()
    (tmp_path / "gpuwidget" / "a.py").write_text(
        "FIX = FixTemplate('wait', 'Wait for {what}:', 'wait {seconds}')\n"
        "SLOW = IssueTemplate('slow', 'warning', 'GPU {gpu} is slow.', FIX)\n"
        "SLOW(gpu=1, what='it', shown={'seconds': 2})\n"
        "SLOW(gpu=1, fix=FIX(what='it', **values))\n"
        "SLOW(what='it')\n"
        "SLOW(gpu=1, fix=FIX(what='it'))\n"
    )
    assert translation.wrong_calls() == [
        "gpuwidget.a:5: SLOW(what='it') does not pass gpu, seconds.",
        "gpuwidget.a:6: FIX(what='it') does not pass seconds.",
    ]
