#!/usr/bin/env -S python3 -B
"""Makes one report of what the parts of scripts/gpu-check left.

    gpu_report.py FOLDER NAME

FOLDER holds parts.tsv (a line per part that ended: name, exit status or "none", seconds, limit, title),
machine.txt ("key<TAB>value"), PART.log, tests.tsv (a line per program of tests: name, "passed", "skipped" or "failed
(STATUS)"), and what programs wrote: kernels.json, trainer-kernels.json, torch-kernels.json, collective-COMMAND.json,
hierarchy.json, two-ranks-1.json, train.json, train-products.json, torch-train.json. Anything may be missing or cut short; then the report
says so and shows the rest. Writes NAME.json and NAME.md and prints a summary. Exit status 0 if no part failed or ran
out of time.
"""

import datetime
import json
import pathlib
import re
import sys

# Least share of the copy's bandwidth in the same run, by the kernel's name; the first that fits counts. A time
# of 1.5 x the floor is a share of 1/1.5. Sets of few tensors fit into the cache and have no bar.
BARS = [
    (r"(un)?pack .*(64 KiB|1 MiB) each|(un)?pack .*GPT", 0.85),
    (r"(un)?pack .*(4|16) KiB each", 0.60),
    (r"add ", 0.90),
    (r"top-k, 1 %", 1 / 1.5),
    (r"(AdamW|cast) ", 0.85),
]
KERNEL_FIELDS = ("kernel", "bytes", "us", "floor_us", "share_of_copy", "wrong")
ON_ONE_GPU = "Ranks share one GPU, whose contexts take turns: the times say nothing about speed."
# For rows: their key in the report, a title, a word before the table, and the fields of its columns.
COLLECTIVE_FIELDS = ("collective", "size", "system", "algorithm", "ranks", "time_us", "wrong")
HIERARCHY_FIELDS = ("size", "algorithm", "ranks", "nodes", "time_us", "wire_bytes", "wrong")
TABLES = (
    ("collectives", "Collectives in device memory", [ON_ONE_GPU, ""], COLLECTIVE_FIELDS),
    ("hierarchy", "Hierarchical all-reduce", [ON_ONE_GPU, ""], HIERARCHY_FIELDS),
    ("training", "Training", [], ("system", "parameters", "step_ms", "tokens_per_s")),
)
HEADS = {"size": "bytes", "time_us": "µs", "wire_bytes": "wire bytes", "step_ms": "ms per step", "tokens_per_s": "tokens/s"}
DIGITS = {"time_us": 1, "step_ms": 2, "tokens_per_s": 0}
LOG_TAIL = 40


def read_json(file, problems):
    """A program's JSON output; None, with a note in `problems`, if it cannot be read."""
    if not file.exists():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        problems.append(f"{file.name} is no JSON: {error}")
        return None


def rows_of(value):
    """A list of rows, or an object that has one under "rows"."""
    rows = value.get("rows", []) if isinstance(value, dict) else value or []
    return [row for row in rows if isinstance(row, dict)]


def tail(text, lines):
    return "\n".join(text.rstrip().splitlines()[-lines:])


def read_parts(folder):
    parts = []
    table = folder / "parts.tsv"
    for line in table.read_text(encoding="utf-8").splitlines() if table.exists() else []:
        name, status, seconds, limit, title = line.split("\t")
        log = folder / f"{name}.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        part = {"name": name, "title": title, "seconds": int(seconds), "limit_s": int(limit)}
        if status == "none":
            part |= {"status": "not started", "detail": "the time for all parts was used up"}
        elif status == "0":
            part |= {"status": "passed", "detail": ""}
        elif status == "77":
            said = [line for line in text.splitlines() if line and not line.startswith("+")]  # + is the trace
            part |= {"status": "skipped", "detail": said[-1] if said else ""}
        elif status == "124":
            part |= {"status": "timed out", "detail": tail(text, LOG_TAIL)}
        else:
            part |= {"status": "failed", "exit_status": int(status), "detail": tail(text, LOG_TAIL)}
        parts.append(part)
    return parts


def read_machine(folder):
    file = folder / "machine.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def read_tests(folder):
    file = folder / "tests.tsv"
    if not file.exists():
        return None
    by_status = {"passed": [], "failed": [], "skipped": []}
    for line in sorted(file.read_text(encoding="utf-8").splitlines()):
        name, outcome = line.split("\t")
        by_status[outcome.split()[0]].append(name)
    return by_status


def bar_of(kernel):
    return next((share for name, share in BARS if re.match(name, kernel)), None)


def own_kernels(folder, problems):
    """The project's kernels by name, each with its bar and with the peers that its program measured."""
    kernels = {}
    rows = usable_rows(folder, "kernels.json", problems) + usable_rows(folder, "trainer-kernels.json", problems)
    for row in rows:
        kernel = kernels.setdefault(row["kernel"], {key: row.get(key) for key in KERNEL_FIELDS} | {"peers": []})
        bar = bar_of(row["kernel"])
        if bar is not None:
            kernel |= {"bar": bar, "met": row["share_of_copy"] >= bar}
        if row.get("peer"):
            kernel["peers"].append({"system": row["peer"], "us": row["peer_us"]})
    return kernels


def usable_rows(folder, name, problems):
    found = rows_of(read_json(folder / name, problems))
    usable = [row for row in found if "kernel" in row and row.get("us") and "share_of_copy" in row]
    if len(usable) < len(found):
        problems.append(f"{name}: {len(found) - len(usable)} rows without kernel, us or share_of_copy")
    return usable


def read_kernels(folder, problems):
    """The project's kernels, PyTorch among their peers; then what only PyTorch has measured."""
    kernels = own_kernels(folder, problems)
    for row in usable_rows(folder, "torch-kernels.json", problems):
        peer = {"system": "PyTorch", "us": row["us"], "share_of_copy": row["share_of_copy"]}
        kernels.setdefault(row["kernel"], {"kernel": row["kernel"], "peers": []})["peers"].append(peer)
    return list(kernels.values())


def read_copies(folder, problems):
    """GB/s of a copy inside the device, as measured by each program."""
    copies = {}
    for system, name in (("kolo", "kernels.json"), ("kolo trainer", "trainer-kernels.json"), ("PyTorch", "torch-kernels.json")):
        value = read_json(folder / name, problems)
        if isinstance(value, dict) and "copy_gb_per_s" in value:
            copies[system] = value["copy_gb_per_s"]
    return copies


def training_rows(folder, problems):
    rows = []
    fields = ("step_ms", "compute_ms", "tokens_per_s", "train_loss", "steps", "precision", "device", "weights_hash")
    for system, name in (("kolo", "train.json"), ("kolo, attention by products", "train-products.json"),
                         ("kolo, a small GPT, 2 ranks on one GPU", "two-ranks-1.json")):
        kolo = read_json(folder / name, problems)
        if isinstance(kolo, dict):
            rows.append({"system": system} | {field: kolo.get(field) for field in fields})
    return rows + rows_of(read_json(folder / "torch-train.json", problems))


def collective_rows(folder, problems):
    rows = []
    for file in sorted(folder.glob("collective-*.json")):
        rows += rows_of(read_json(file, problems))
    return rows


def make_report(folder, now):
    problems = []
    return {
        "date": now.isoformat(timespec="seconds"),
        "machine": read_machine(folder),
        "parts": read_parts(folder),
        "tests": read_tests(folder),
        "copy_gb_per_s": read_copies(folder, []),  # Unreadable files are reported once, with the rows.
        "kernels": read_kernels(folder, problems),
        "collectives": collective_rows(folder, problems),
        "hierarchy": rows_of(read_json(folder / "hierarchy.json", problems)),
        "training": training_rows(folder, problems),
        "problems": problems,
    }


def number(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value):
    return "–" if value is None else f"{100 * value:.0f} %"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def cells_of(row, fields):
    return [number(row.get(field), DIGITS[field]) if field in DIGITS else row.get(field, "") for field in fields]


def kernel_table(kernels):
    cells = []
    for kernel in kernels:
        beside = [
            f"{peer['system']} {number(peer['us'])}" + (f" ({percent(peer['share_of_copy'])})" if "share_of_copy" in peer else "")
            for peer in kernel["peers"]
        ]
        verdict = {True: "yes", False: "**no**", None: ""}[kernel.get("met")]
        cells.append([
            kernel["kernel"], number(kernel.get("us")), percent(kernel.get("share_of_copy")),
            percent(kernel["bar"]) if "bar" in kernel else "", verdict,
            "" if kernel.get("wrong") is None else kernel["wrong"], ", ".join(beside),
        ])  # fmt: skip
    return table(["kernel", "µs", "of copy", "bar", "met", "wrong bytes", "beside (µs)"], cells)


def to_markdown(report):
    machine = report["machine"]
    text = [f"# GPU check of {report['date'][:10]}", ""]
    text += table(["", ""], [[key, value] for key, value in machine.items()])
    text += ["", "## Parts", ""]
    text += table(
        ["part", "what", "status", "s"],
        [[part["name"], part["title"], status_text(part), part["seconds"]] for part in report["parts"]],
    )
    if report["tests"]:
        tests = report["tests"]
        text += ["", "## Tests", "", ", ".join(f"{len(names)} {status}" for status, names in tests.items()) + "."]
        text += [f"- {name} failed" for name in tests["failed"]] + [f"- {name} skipped" for name in tests["skipped"]]
    if report["kernels"]:
        text += ["", "## Kernels", ""]
        text += [
            "A share is the time that the fewest bytes would take at the speed of a copy inside the device, over the"
            " time taken. The copy, measured by each program in the same run: "
            + ", ".join(f"{system} {number(speed, 0)} GB/s" for system, speed in report["copy_gb_per_s"].items()) + ".",
            "",
        ]
        text += kernel_table(report["kernels"])
    for key, title, before, fields in TABLES:
        if report[key]:
            text += ["", f"## {title}", "", *before]
            text += table([HEADS.get(field, field) for field in fields], [cells_of(row, fields) for row in report[key]])
    for part in report["parts"]:
        if part["status"] in ("failed", "timed out"):
            text += ["", f"## The end of {part['name']}'s log", "", "```", part["detail"].replace("```", "'''"), "```"]
    if report["problems"]:
        text += ["", "## Not readable", ""] + [f"- {problem}" for problem in report["problems"]]
    return "\n".join(text) + "\n"


def status_text(part):
    if part["status"] == "failed":
        return f"**failed** ({part['exit_status']})"
    if part["status"] == "timed out":
        return f"**timed out** after {part['limit_s']} s"
    if part["status"] in ("skipped", "not started"):
        return f"{part['status']}: {part['detail']}"
    return part["status"]


def summary(report):
    lines = [f"{part['name']:14} {part['seconds']:>4} s  {part['status']}" for part in report["parts"]]
    judged = [row for row in report["kernels"] if "met" in row]
    if judged:
        lines.append(f"{sum(row['met'] for row in judged)} of {len(judged)} kernel rows meet their bars")
    lines += [f"{row['system']}: {number(row.get('step_ms'), 2)} ms per step" for row in report["training"]]
    return "\n".join(lines)


def main():
    folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    report = make_report(folder, datetime.datetime.now(datetime.timezone.utc))
    pathlib.Path(name + ".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    pathlib.Path(name + ".md").write_text(to_markdown(report), encoding="utf-8")
    print(summary(report))
    print(f"written: {name}.json, {name}.md")
    bad = [part for part in report["parts"] if part["status"] not in ("passed", "skipped")]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
