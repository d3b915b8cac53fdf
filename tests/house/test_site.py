"""The site of docs/: mkdocs builds it without a warning, each page is in its menu, and each link leads somewhere."""

import re
import shutil
import subprocess
import sys
from html import unescape
from urllib.parse import unquote

import pytest
from browsed import CHROMIUM, browse
from paths import DOCS, ROOT

MADE = {"api.md"}  # pages that are made when the site is built
PLACE = re.compile(r'(?:href|src)="([^"]*)"')


def build(folder, **more):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.needs("mkdocs")
def test_each_link_of_the_site_leads_somewhere(site):
    pages = sorted(site.rglob("index.html"))
    assert len(pages) == len(list(DOCS.rglob("*.md"))) + len(MADE)
    links = [(page, unescape(place)) for page in pages for place in PLACE.findall(page.read_text())]
    inside = [(page, unquote(place)) for page, place in links if "://" not in place and not place.startswith("data:")]
    assert len(inside) > 1000
    assert [(page, place) for page, place in inside if not leads(page, place)] == []


def leads(page, place):
    """Whether a link of a page leads to a file of the site, and to an id in it. What has an equals sign is a question of
    the playground."""
    path, _, part = place.partition("#")
    part = "ask" if "=" in part else part
    target = (page.parent / path).resolve() if path else page
    target = target / "index.html" if target.is_dir() else target
    return target.is_file() and (not part or re.search(f'id="{re.escape(part)}"', target.read_text()) is not None)


@pytest.mark.needs("mkdocs")
def test_a_broken_link_is_found(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(DOCS, copy / "docs")
    shutil.copytree(ROOT / ".github", copy / ".github")
    shutil.copy(ROOT / "mkdocs.yml", copy)
    page = copy / "docs" / "tiles.md"
    page.write_text(page.read_text() + "\n[x](nowhere.md)\n")
    done = build(tmp_path / "out", cwd=copy)
    assert done.returncode == 1 and "nowhere.md" in done.stdout + done.stderr


def test_the_menu_has_every_page():
    menu = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted({*menu} - MADE) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


WIDTHS = """(async () => {
  const wide = [], plain = []
  for (const page of %s) {
    await new Promise(loaded => { frame.onload = loaded; frame.src = page })
    const width = frame.contentWindow.document.documentElement.scrollWidth
    if (width > frame.clientWidth) wide.push([page, width])
    const tables = frame.contentWindow.document.querySelectorAll("main table, [role=main] table")
    if ([...tables].some(table => table.id === "" && !table.classList.contains("table"))) plain.push(page)
  }
  return [wide, plain, getComputedStyle(frame.contentWindow.document.body).fontSize]
})()"""


@pytest.mark.needs("mkdocs")
@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
def test_no_page_is_wider_than_a_phone_and_the_scripts_of_all_run(site, tmp_path):
    pages = ["/" + page.parent.relative_to(site).as_posix() + "/" for page in site.rglob("index.html")]
    (wide, plain, size), _ = browse(
        site, "/tiles/", WIDTHS % [page.replace("/./", "/") for page in pages], tmp_path, width=390
    )
    assert wide == plain == [] and float(size.removesuffix("px")) >= 14


ASKED = (
    "Will it fit?",
    "Which tiles?",
    "How long?",
    "Across GPUs",
    "A batch",
    "Your own chip",
    "Your own schedule",
    "Floors",
)


def test_the_menu_has_the_pages_that_people_ask_for_and_the_front_page_leads_there():
    menu = dict(re.findall(r"^ +- ([^:\n]+): ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    front = (DOCS / "index.md").read_text()
    assert [name for name in (*ASKED, "Attention with a state") if f"]({menu.get(name)})" not in front] == []
