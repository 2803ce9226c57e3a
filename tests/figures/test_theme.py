"""Colours: one a role, readable on light and dark, told apart by colour-blind eyes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from fmha.figures import theme
from fmha.figures.sketch import Sketch

LIGHT_GROUND, DARK_GROUND = "#ffffff", "#10151c"
GROUPS = (
    ("Q", "K", "V", "S", "O"),
    ("m", "l", "alpha"),
    ("naive", "q-outer", "kv-outer"),
    ("HBM", "L2", "SMEM", "REG"),
    ("ok", "warn", "skip"),
)
# Machado, Oliveira and Fernandes (2009), severity 1.0, in linear RGB.
EYES = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(color: str) -> np.ndarray:
    c = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = matrix @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_every_role_has_its_own_colour_in_both_palettes() -> None:
    for mode in ("light", "dark"):
        colors = theme.palette(mode)
        assert colors.keys() == theme.ROLES.keys()
        assert len(set(colors.values())) == len(colors)


@pytest.mark.parametrize("role", theme.ROLES)
def test_figure_colours_are_readable_on_light_and_on_dark(role: str) -> None:
    color = theme.color(role)
    assert contrast(color, LIGHT_GROUND) >= 3
    assert contrast(color, DARK_GROUND) >= 3
    assert contrast(theme.palette("dark")[role], DARK_GROUND) >= 4


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
def test_colours_that_meet_in_one_picture_differ_for_all_eyes(mode: theme.Mode, eyes: str) -> None:
    colors, seen = theme.palette(mode), np.array(EYES[eyes])
    for group in GROUPS:
        for a, b in itertools.combinations(group, 2):
            distance = np.linalg.norm(lab(seen @ linear(colors[a])) - lab(seen @ linear(colors[b])))
            assert distance >= 18, (a, b, distance)


def test_json_for_the_player_and_the_chart_component() -> None:
    data = json.loads(theme.as_json())
    assert data["light"]["Q"] == theme.color("Q")
    assert data["swaps"][data["light"]["K"]] == data["dark"]["K"]


def test_template_does_not_depend_on_streamlit() -> None:
    import plotly.io as pio

    before = pio.templates.default
    try:
        pio.templates.default = "none"
        layout = Sketch("title").figure().layout
        assert layout.template.layout.font.size >= 14
        assert layout.template.layout.colorway[0] == theme.color("Q")
    finally:
        pio.templates.default = before
