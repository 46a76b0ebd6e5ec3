"""Compare colors as people with normal and with deficient color vision see them."""

from __future__ import annotations

import math
import re

Rgb = tuple[float, float, float]
Matrix = tuple[Rgb, Rgb, Rgb]

# The complete deficiencies of Machado, Oliveira and Fernandes (2009), for linear sRGB.
_VISIONS: dict[str, Matrix] = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
VISIONS = tuple(_VISIONS)
# From linear sRGB to the color space Oklab, by way of cone responses.
_CONES: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_OKLAB: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
_LUMINANCE: Rgb = (0.2126, 0.7152, 0.0722)


def contrast(color: str, background: str) -> float:
    """Return the contrast ratio of WCAG, from 1 to 21. Colors are ``#rrggbb`` or ``rgb(r, g, b)``."""
    low, high = sorted(_luminance(one) for one in (color, background))
    return (high + 0.05) / (low + 0.05)


def distance(first: str, second: str, vision: str) -> float:
    """Return the distance of two colors in Oklab, where 1 is the distance of black and white. ``vision`` is
    one of ``VISIONS``."""
    return math.dist(*(_oklab(_times(_VISIONS[vision], _linear(color))) for color in (first, second)))


def _luminance(color: str) -> float:
    return sum(weight * value for weight, value in zip(_LUMINANCE, _linear(color), strict=True))


def _linear(color: str) -> Rgb:
    hexadecimal = color.strip().removeprefix("#")
    if color.strip().startswith("#"):
        values = [int(hexadecimal[place : place + 2], 16) for place in (0, 2, 4)]
    else:
        values = [int(value) for value in re.findall(r"\d+", color)[:3]]
    red, green, blue = (_decode(value / 255) for value in values)
    return red, green, blue


def _decode(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _oklab(linear: Rgb) -> Rgb:
    red, green, blue = (max(0.0, min(1.0, value)) for value in linear)
    long, medium, short = (value ** (1 / 3) for value in _times(_CONES, (red, green, blue)))
    return _times(_OKLAB, (long, medium, short))


def _times(matrix: Matrix, vector: Rgb) -> Rgb:
    first, second, third = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return first, second, third
