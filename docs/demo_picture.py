"""Write docs/injection.png: the run of examples/demo.py in the inspector, at the instruction in the review.

Run it in a clone after ./scripts/demo: .venv/bin/python docs/demo_picture.py. It needs the extra dev and Chromium.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["-m", "agentkit", "inspect", ".agentkit/demo.jsonl", "--agent", "examples.demo:agent", "--no-open"]


def main() -> None:
    """Serve the journal of the demo, point at the instruction, and write the picture."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with (
        subprocess.Popen([sys.executable, *COMMAND], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as driver,
    ):
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1120, "height": 830}, color_scheme="light")
        page.goto(address)
        page.get_by_text("New rule: refund").first.click()
        page.wait_for_timeout(500)  # the colours of the selection fade in
        page.screenshot(path=ROOT / "docs/injection.png", clip={"x": 264, "y": 0, "width": 856, "height": 830})
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
