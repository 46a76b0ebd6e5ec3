"""Messages with an id and parameters: the notes of a report and the reasons for unknown values.

A record, a :class:`Template`, is called with its parameters and returns the message. Each package keeps its
records in one module per topic. Code compares ids, never texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwidget.model import units
from gpuwidget.model.translation import FORMATS, Text, joined, template_fields, translatable


def _gpu_names(numbers: Sequence[str]) -> str:
    """Return GPUs in prose: ``GPU 0``, ``GPUs 0 and 2`` or ``GPUs 0, 1 and 2``."""
    *others, last = numbers
    if not others:
        return f"GPU {last}"
    return translatable("GPUs {numbers} and {last}", numbers=", ".join(others), last=last)


def _ranks(ranks: Sequence[int]) -> str:
    """Return ranks in prose: ``rank 0``, ``ranks 0 and 2`` or ``ranks 0, 1 and 2``."""
    *others, last = ranks
    if not others:
        return f"rank {last}"
    return translatable("ranks {ranks} and {last}", ranks=", ".join(map(str, others)), last=last)


# All formats are here, so that each process can fill each template that it finds in a file.
FORMATS.update(
    memory=units.memory,
    duration=units.duration,
    percent=units.percent,
    ordinal=units.ordinal,
    gpu_names=_gpu_names,
    ranks=_ranks,
)


@dataclass(frozen=True, slots=True)
class MessageId:
    """Identifies a message for programs. Unlike the text, the id does not change between versions."""

    id: str
    params: Mapping[str, Any]
    """The values that the message's text contains, by name."""


class Message(Text):
    """A text for the user that also has an id for programs. :func:`message` and :class:`Template` make it.

    ``params`` are those of the text. :attr:`message_id` has those for programs.
    """

    __slots__ = ("message_id",)

    message_id: MessageId

    @property
    def id(self) -> str:
        """The message's id, without its parameters."""
        return self.message_id.id

    def with_english(self, english: str) -> Message:
        return _message(self.message_id, super().with_english(english))


@dataclass(frozen=True, slots=True)
class Template:
    """A message without the values of its parameters. Call it with them.

    ``text`` contains each parameter as ``{name}`` or ``{name:format}``: see
    :data:`~gpuwidget.model.translation.FORMATS`. ``python -m tools.translation --check`` compares each call
    with the template.
    """

    id: str
    text: str | tuple[str, ...]
    """The text, or several: the first whose parameters are all known is used, or else the last."""

    def __call__(self, /, *, shown: Mapping[str, Any] | None = None, **params: Any) -> Message:
        """Return the message with these parameters. ``shown`` are more values for the text only."""
        return _message(MessageId(self.id, params), fill(self.text, {**params, **(shown or {})}))


class Sentences:
    """A text of several sentences, without the values of its parameters. Call it with them.

    Each sentence is one template or several: the first whose parameters are all known (not None) is used. A
    sentence without such a template is left out.
    """

    __slots__ = ("_sentences",)

    def __init__(self, *sentences: str | tuple[str, ...]) -> None:
        self._sentences = sentences

    def __call__(self, **params: Any) -> Text:
        """Return the text with these parameters."""
        known = [template for texts in self._sentences if (template := _first_known(texts, params))]
        filled = [
            translatable(template, **{field.name: params[field.name] for field in template_fields(template)})
            for template in known
        ]
        return filled[0] if len(filled) == 1 else joined(filled, " ")


def fill(texts: str | tuple[str, ...], params: Mapping[str, Any]) -> Text:
    """Return the first of the texts whose parameters are all known (not None), or else the last of them."""
    if isinstance(texts, str):
        return translatable(texts, **params)
    return translatable(_first_known(texts, params) or texts[-1], **params)


def _first_known(texts: str | tuple[str, ...], params: Mapping[str, Any]) -> str | None:
    return next(
        (text for text in ((texts,) if isinstance(texts, str) else texts) if has_values(text, params)), None
    )


def has_values(text: str, params: Mapping[str, Any]) -> bool:
    """Return whether all parameters of the template ``text`` are known (not None)."""
    return all(params.get(field.name) is not None for field in template_fields(text))


def message(id_: str, template: str, **params: Any) -> Message:
    """Return the message with the id ``id_``, the template of its text and the template's parameters."""
    text = template if isinstance(template, Text) else translatable(template, **params)
    return _message(MessageId(id_, params), text)


def english_message(id_: str, text: str, **params: Any) -> Message:
    """Return a message that is not translated, because its text already contains the values of ``params``."""
    return message(id_, translatable(text), **params)


def _message(message_id: MessageId, text: Text) -> Message:
    made = Message(text)
    made.template, made.params, made.message_id = text.template, text.params, message_id
    return made


def by_id(*templates: Template) -> dict[str, Template]:
    """Return the templates by id, for messages that differ in the value of a parameter."""
    return {template.id: template for template in templates}


def message_ids(messages: Mapping[str, Text]) -> dict[str, MessageId]:
    """Return the id and parameters of each message, with the same keys, without texts that have none."""
    return {name: text.message_id for name, text in messages.items() if isinstance(text, Message)}
