"""A hook of mkdocs: links of docs/ that lead to other folders of the repository.

On the site such a link leads to the repository, if `repo_url` is set (REPO_URL in .github/workflows/docs.yml). Without
it the link's text is left. An id of a title that begins with a digit gets a letter before it, and so do links to it:
the menu at the side of a page finds no other ids.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from markdown.extensions.toc import slugify

TO_DIGIT = re.compile(r"(\]\([^)\s]*#)(?=\d)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]*)\)")


def on_config(config: Any) -> Any:
    """The configuration, with the address of the repository, and ids that begin with letters."""
    config.repo_url = os.environ.get("REPO_URL") or config.repo_url
    config.mdx_configs.setdefault("toc", {})["slugify"] = id_of
    return config


def id_of(title: str, separator: str) -> str:
    """The id of a title."""
    found: str = slugify(title, separator)
    return f"s{separator}{found}" if found[:1].isdigit() else found


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page, whose links stay in docs/ or lead to the repository."""
    docs = Path(config.docs_dir)
    folder = docs / PurePosixPath(page.file.src_uri).parent

    def led(match: re.Match[str]) -> str:
        text, target = match.groups()
        place, _, part = target.partition("#")
        path = Path(os.path.normpath(folder / place))
        if path.is_relative_to(docs):
            return match[0]
        if not config.repo_url:
            return text
        where = path.relative_to(docs.parent).as_posix()
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{where}{'#' * bool(part)}{part})"

    return TO_DIGIT.sub(r"\1s-", LINK.sub(led, markdown))
