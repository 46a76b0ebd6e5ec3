"""The manifest of the pictures that ``make pictures`` takes: states of the screens, and the looks of each.

A state is a function of ``take_pictures.py``. There is one picture for each combination of its properties:

========  ==================================================================================================
gpus      number of GPUs of the machine
width     width of the panel or, if the picture shows the whole page, of the page, in CSS pixels
theme     ``light`` or ``dark``
font      JupyterLab's UI font size in pixels
zoom      zoom of the browser in percent
height    height of the page in CSS pixels, without the zoom
========  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Properties = Mapping[str, Sequence[Any]]

DEFAULTS: Properties = {
    "gpus": (2,),
    "width": (300,),
    "theme": ("light", "dark"),
    "font": (13,),
    "zoom": (100,),
    "height": (1000,),
}
_WIDTHS = {"width": (240, 300, 420)}
_PAGE = {"width": (1366,), "height": (768,)}

MANIFEST: Mapping[str, Sequence[Properties]] = {
    "panel": (
        {**_WIDTHS, "gpus": (1, 2, 8, 16)},
        {**_WIDTHS, "gpus": (2, 8), "font": (18,)},
        {**_WIDTHS, "gpus": (2, 8), "theme": ("light",), "zoom": (200,)},
        {"gpus": (2, 8), "width": (300,), "height": (768,)},
    ),
    "panel_not_loaded": ({},),
    "panel_without_notebook": ({},),
    "panel_busy": ({},),
    "panel_without_cuda": ({},),
    "panel_holders": ({**_WIDTHS}, {**_WIDTHS, "theme": ("light",), "font": (18,)}),
    "panel_switches": ({"width": (240, 300)},),
    "panel_cells": ({**_WIDTHS}, {**_WIDTHS, "theme": ("light",), "font": (18,)}),
    "panel_no_driver": ({**_WIDTHS},),
    "panel_lost_gpu": ({**_WIDTHS},),
    "panel_mig": ({**_WIDTHS},),
    "nearly_full": ({**_PAGE},),
    "status_bar": ({**_PAGE, "height": (300,), "gpus": (2, 8)},),
    "panel_hung_gpu": ({},),
    "panel_recording": ({},),
    "panel_server_down": ({},),
    "panel_different_gpus": ({"gpus": (5,), **_WIDTHS},),
    "panel_doctor_healthy": ({},),
    "panel_doctor_without_gpu": ({**_WIDTHS},),
    "panel_doctor_problems": ({**_WIDTHS},),
    "panel_cluster": ({**_WIDTHS},),
    "panel_in_chinese": ({**_WIDTHS},),
    "notebook_7": ({"width": (1200,)},),
    "live_chart": ({"width": (1200,)},),
    "dask_workers": ({"width": (1200,)},),
    "inline": ({"width": (700, 1200), "gpus": (2, 8)},),
    "outputs": ({"width": (1200,), "height": (3200,)},),
    "out_of_memory": ({"width": (1200,), "height": (1600,)},),
    "dashboard": (
        {**_PAGE, "gpus": (1, 2, 8, 16)},
        {"gpus": (2, 16), "width": (700,), "zoom": (100, 200)},
    ),
    "dashboard_gap": ({**_PAGE, "gpus": (2, 16)},),
    "dashboard_recording": ({**_PAGE, "height": (1100,), "gpus": (4,)}, {"gpus": (4,), "width": (700,)}),
    "dashboard_holders": ({**_PAGE, "height": (1100,)},),
    "dashboard_lost_gpu": ({**_PAGE},),
    "dashboard_old_gpu": ({**_PAGE, "gpus": (1,)},),
    "dashboard_no_driver": ({**_PAGE},),
    "wall": ({**_PAGE},),
    "wall_problem": ({**_PAGE},),
    "wall_empty": ({**_PAGE},),
}
