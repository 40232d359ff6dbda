"""Hooks of MkDocs: the files of the root are pages too, and links out of docs/ lead to the forge."""

import re
from pathlib import Path

from mkdocs.structure.files import File

FORGE = "https://github.com/kubebridge/bridge/blob/main/"
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files, config):
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = LINK.sub(lambda m: f"]({to_page(m[1])}{m[2] or ''})", (root / source).read_text())
        files.append(File.generated(config, page, content=text))
    decisions = sorted((root / "docs/decisions").glob("[0-9]*.md"))
    lines = [f"- [{p.read_text().splitlines()[0].lstrip('# ')}]({p.name})" for p in decisions]
    text = "# Decisions\n\nWhy the bridge is as it is, one page each.\n\n" + "\n".join(lines) + "\n"
    files.append(File.generated(config, "decisions/index.md", content=text))
    return files


def to_page(target):
    """A link of README.md, from the root of the repository, as one of a page in docs/."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/") and target.endswith(".md"):
        return target.removeprefix("docs/")
    if target == "docs/decisions/":
        return "decisions/index.md"
    return FORGE + target


def on_page_markdown(markdown, page, **_):
    depth = page.file.src_uri.count("/") + 1
    up = "../" * depth

    def replace(m):
        target, fragment = m[1], m[2] or ""
        if target == "decisions/":
            return "](decisions/index.md)"
        if not target.startswith(up):
            return m[0]
        target = target.removeprefix(up)
        if target in PAGES:
            return f"]({'../' * (depth - 1)}{PAGES[target]}{fragment})"
        return f"]({FORGE}{target}{fragment})"

    return LINK.sub(replace, markdown)
