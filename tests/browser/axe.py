"""axe-core, run on an open page. It comes with .ci/requirements-test.txt, as a file of a package: no network."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

BAD = ("serious", "critical")
# Rules whose answer depends on colours and on the window.
BY_LOOK = ["color-contrast", "link-in-text-block", "meta-viewport", "scrollable-region-focusable", "target-size"]
_package = importlib.util.find_spec("axe_playwright_python")
SCRIPT = Path(_package.origin).parent / "axe.min.js" if _package is not None and _package.origin else None


def violations(page: Page, rules: list[str] | None = None) -> list[str]:
    """What axe-core calls serious or critical, one line each; by some of its rules, or by all. Nothing without axe."""
    if SCRIPT is None:
        return []
    if not page.evaluate("'axe' in window"):
        page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False, "iframes": False}
    if rules is not None:
        options["runOnly"] = {"type": "rule", "values": rules}
    found: dict[str, Any] = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{v['impact']} {v['id']}: {node['html'][:150]} ({node['failureSummary'][:200]})"
        for v in found["violations"]
        if v["impact"] in BAD
        for node in v["nodes"]
    ]
