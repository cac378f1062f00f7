"""The project's pages of documentation, and the commands in them."""

import itertools
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(pattern):
    """Returns the project's files whose names match `pattern`."""
    if not (ROOT / ".git").exists():  # in an archive, every file outside of build folders counts
        found = ROOT.rglob(pattern)
        return [file for file in found if file.is_file() and "build" not in file.relative_to(ROOT).parts]
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    names = subprocess.check_output(git, cwd=ROOT, text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def all_pages():
    return files("*.md")


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


def unfolded(name):
    """Returns the names for which a name with braces stands: `a{,_b}` is `a` and `a_b`."""
    parts = re.split(r"\{([^}]*)\}", name)
    choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def index_of_files(page):
    """Returns the files that a page lists by folder, without extensions. What is in brackets is no file."""
    rooms = {}
    for line in re.findall(r"^- (\[`.*(?:\n  .*)*)", page.read_text(encoding="utf-8"), re.M):
        room, names = re.fullmatch(r"\[`([\w/]+)`\]\([^)]*\): (.*)", line, re.S).groups()
        spans = re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", names))
        rooms[room] = [name for span in spans for name in unfolded(span)]
    return rooms
