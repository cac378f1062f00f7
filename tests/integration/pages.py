"""The project's pages of documentation, and the commands in them."""

import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def all_pages():
    if not (ROOT / ".git").exists():  # in an archive, every file outside of build folders counts
        return [page for page in ROOT.rglob("*.md") if "build" not in page.relative_to(ROOT).parts]
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.check_output(git, cwd=ROOT, text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def current_pages():
    """Returns the pages about the present. Decisions and old changes may name removed files."""
    return [page for page in all_pages() if page.name != "CHANGELOG.md" and page.parent.name != "decisions"]


def words(page, tables=True):
    lines = page.read_text(encoding="utf-8").splitlines()
    return sum(len(line.split()) for line in lines if tables or not line.startswith("|"))


def anchors(page):
    """Returns the anchors of a page's headings on the web."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page):
    """Yields the words of each line of a page's code blocks, without comments and continuations."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.M | re.S)
    indented = re.findall(r"^    (\S.*)$", text, re.M)
    for line in [line for block in fenced for line in block.splitlines()] + indented:
        try:
            yield shlex.split(line, comments=True)
        except ValueError:  # prose, or output with a single quotation mark
            continue


def calls(page, is_program):
    """Yields program and arguments of each command whose program satisfies `is_program`."""
    for command in commands(page):
        for place, word in enumerate(command):
            if is_program(word):
                rest = command[place + 1:]
                yield word, rest[: rest.index("&&")] if "&&" in rest else rest


def flags(arguments):
    """Returns the names of the options among these arguments, up to the next command."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return [argument.partition("=")[0] for argument in own if argument.startswith("--")]
