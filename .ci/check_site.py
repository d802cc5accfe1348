"""Look at the built site: every internal link, and five pages in a real browser.

    python .ci/check_site.py build/docs

Links and anchors must exist. In the browser, at the width of a phone, no page may scroll sideways, pictures must be
shown, mathematics must take up room, and the console must stay empty but for notes of the theme. Without a browser that
part is left out, and said.
"""

from __future__ import annotations

import functools
import html.parser
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

PAGES = {  # and whether there are pictures and mathematics
    "index.html": (False, False),
    "start.html": (False, False),
    "learn/3-lagrangian.html": (False, True),
    "auto_gallery/plot_08_comparison.html": (True, False),
    "reference/generated/fastcmdp.solve.html": (False, False),
}
PHONE = 360

PROBE = """<!doctype html><title>-</title>
<iframe id="phone" style="width: WIDTHpx; height: 700px; border: 0"></iframe>
<script>
const frame = document.getElementById("phone"), pages = PAGES, found = [];
let seen = null;
function look() {
  const page = frame.contentDocument, seenBox = x => x.getBoundingClientRect().height > 4;
  const wide = [...page.querySelectorAll("body *")].filter(
    x => x.getBoundingClientRect().right > WIDTH + 1 && getComputedStyle(x).position !== "fixed");
  found.push({
    page: seen, width: frame.contentWindow.innerWidth, scroll: page.documentElement.scrollWidth,
    wide: wide.slice(0, 5).map(x => x.tagName + "." + x.className),
    pictures: [...page.querySelectorAll("article img")].map(x => x.naturalWidth),
    mathematics: [...page.querySelectorAll("math")].map(seenBox), title: page.title,
  });
  next();
}
function next() {
  if (!pages.length) { document.title = "PROBED " + JSON.stringify(found); return; }
  seen = pages.shift();
  frame.onload = () => {
    for (const x of frame.contentDocument.querySelectorAll("img")) x.loading = "eager";
    setTimeout(look, 400);
  };
  frame.src = seen;
}
next();
</script>
"""


class Links(html.parser.HTMLParser):
    """The links of a page and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag links to and what it is called."""
        given = dict(attrs)
        self.anchors |= {given[key] or "" for key in ("id", "name") if key in given}
        self.links += [given[key] or "" for key in ("href", "src") if given.get(key)]


def read(path: Path) -> Links:
    """Links and anchors of a page."""
    found = Links()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def broken_links(root: Path) -> tuple[list[str], int]:
    """Internal links that lead nowhere, and how many were looked at."""
    pages = {path: read(path) for path in sorted(root.rglob("*.html"))}
    broken, n = [], 0
    for path, page in pages.items():
        here = path.relative_to(root).as_posix()
        if here.startswith("_static/"):  # templates of the theme
            continue
        for link in page.links:
            target, anchor = urldefrag(link)
            if urlsplit(target).scheme or link.startswith(("//", "data:", "javascript:")):
                continue
            n += 1
            goal = root / unquote(urlsplit(urljoin("/" + here, target or here.split("/")[-1])).path).lstrip(
                "/"
            )
            if goal.is_dir():
                goal = goal / "index.html"
            if not goal.exists():
                broken.append(f"{here}: {link}: no such file")
            elif anchor and goal in pages and unquote(anchor) not in pages[goal].anchors:
                broken.append(f"{here}: {link}: no such place on the page")
    return broken, n


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of the site and the probe beside them; nothing is logged."""

    probe = b""

    def do_GET(self) -> None:
        """Serve the probe or a file."""
        if self.path != "/probe.html":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.probe)
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def browse(root: Path, browser: str) -> tuple[list[dict], list[str]]:
    """What the browser saw on each page, and what its console said."""
    Quiet.probe = PROBE.replace("WIDTH", str(PHONE)).replace("PAGES", json.dumps(list(PAGES))).encode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            "--virtual-time-budget=60000", "--dump-dom", f"--user-data-dir={folder}/profile",
            f"http://127.0.0.1:{server.server_port}/probe.html",
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=180, env=os.environ | {"HOME": folder}
        )
    server.shutdown()
    server.server_close()
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line and '"[PST]: ' not in line]
    text = html.unescape(done.stdout)
    if "PROBED " not in text:
        return [], [*console, "the browser did not get through the pages", done.stderr[-2000:]]
    return json.loads(text.split("PROBED ", 1)[1].split("</title>")[0]), console


def complaints(seen: list[dict], console: list[str]) -> list[str]:
    """What is wrong with the pages."""
    made = list(console)
    if [page["page"] for page in seen] != list(PAGES):
        made.append(f"pages seen: {[page['page'] for page in seen]}")
    for page in seen:
        name, (pictures, mathematics) = page["page"], PAGES[page["page"]]
        if page["width"] != PHONE or page["scroll"] > PHONE:
            made.append(f"{name}: {page['scroll']} wide on {page['width']}: {page['wide']}")
        if 0 in page["pictures"] or (pictures and not page["pictures"]):
            made.append(f"{name}: pictures {page['pictures']}")
        if not all(page["mathematics"]) or (mathematics and len(page["mathematics"]) < 5):
            made.append(f"{name}: mathematics {page['mathematics']}")
    return made


def main(folder: str) -> int:
    """Check a site; 0 if all is well."""
    root = Path(folder)
    wrong, n = broken_links(root)
    print(f"{n} internal links")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        print("no browser here: pages were not looked at")
    else:
        seen, console = browse(root, browser)
        wrong += complaints(seen, console)
        print(f"{len(seen)} pages in {browser}, {PHONE} points wide")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
