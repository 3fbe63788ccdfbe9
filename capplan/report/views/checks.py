"""How the verdicts of ``validate`` look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.checks import FileChecks
from capplan.report.tables import Column, Table, View


def checks_view(answer: Answer[FileChecks]) -> View:
    """One row a file: valid, or what is wrong, where, and how to mend it."""
    columns = [Column("file", "file"), Column("verdict", "verdict"), Column("name", "name")]
    columns += [Column("what is wrong", "message"), Column("where", "where"), Column("hint", "hint")]
    rows = []
    for check in answer.result.files:
        problem = check.problem or {"message": "", "where": "", "hint": ""}
        verdict = "invalid" if check.problem else "valid"
        rows.append([check.file, verdict, check.name, problem["message"], problem["where"], problem["hint"]])
    if not any(check.problem for check in answer.result.files):
        columns, rows = columns[:3], [row[:3] for row in rows]
    return View("", (Table(columns, rows),))
