"""A report in a real browser: Chromium without a window opens a page, runs a script in it, and gives back what it says.

Without Chromium these tests are skipped, and say so; ``EQSAT_REQUIRE_BROWSER=1`` makes that a failure
(``make report-test`` sets it).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REQUIRED = os.environ.get("EQSAT_REQUIRE_BROWSER") == "1"

needs_browser = pytest.mark.skipif(
    CHROMIUM is None and not REQUIRED, reason="Chromium is missing: `apt-get install chromium`, then `make report-test`"
)

# Errors are collected before any script of the page runs; what the test asks is put into the page at its end.
_BEFORE = """<script>
const seen = []; addEventListener("error", (e) => seen.push(String(e.message)));
for (const level of ["error", "warn"]) console[level] = (...all) => seen.push(all.join(" "));
// Without a window there are no frames to wait for.
window.requestAnimationFrame = (f) => setTimeout(f, 0);
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => seen.push(name);
</script>"""
_AFTER = """<script>
const say = (answer) => {
  const pre = document.createElement("pre"); pre.id = "answer";
  pre.textContent = JSON.stringify({ seen, answer }); document.body.append(pre);
};
const fail = (e) => { seen.push(String(e.stack ?? e)); say(null); };
addEventListener("load", () => {
  const wait = %d;
  if (wait) setTimeout(() => asked().then(say, fail), wait);
  else try { say(asked()); } catch (e) { fail(e); }
});
%s function asked() { %s }
</script>"""


def _chromium(folder: Path, *arguments: str, size: str, real_time: bool) -> str:
    assert CHROMIUM is not None, "Chromium is required: apt-get install chromium"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
    command += [f"--user-data-dir={folder / 'profile'}", *arguments]
    # With a time of its own, Chromium waits for what the page has planned.
    command += [] if real_time else ["--virtual-time-budget=5000"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=180, check=True).stdout


def ask(html: str, script: str, folder: Path, *arguments: str, size: str = "1400,1000", real_time: bool = False) -> Any:
    """Opens a page and runs a script in it.

    Args:
        html: The page.
        script: The body of an async function; what it returns must be JSON.
        folder: For the page and the browser's profile.
        arguments: Of Chromium.
        size: Of the window.
        real_time: Whether clocks are right; then the script must not wait.

    Returns:
        What the script returned. Errors and warnings of the page fail the test.
    """
    page = folder / "page.html"
    after = _AFTER % ((0, "", script) if real_time else (300, "async", script))
    page.write_text(html.replace("<head>", "<head>" + _BEFORE, 1).replace("</body>", after + "</body>", 1), "utf-8")
    text = _chromium(folder, "--dump-dom", *arguments, page.as_uri(), size=size, real_time=real_time)
    found = re.search(r'<pre id="answer">(.*?)</pre>', text, re.DOTALL)
    assert found, "the page did not answer"
    answer = json.loads(unescape(found[1]))
    assert answer["seen"] == []
    return answer.get("answer")
