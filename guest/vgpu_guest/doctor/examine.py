"""The order of the checks. Each check adds findings; a place that cannot be entered is itself a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    check_endpoint,
    check_environment,
    check_installation,
    check_interposed,
    check_library,
    check_need,
    check_ollama,
    check_preload,
    check_probe,
    check_profiler,
    check_program,
    check_python,
    check_runtime,
)
from .diagnosis import Diagnosis
from .place import PlaceError
from .subject import SubjectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .subject import Subject


def examine(find_subject: Callable[[], Subject]) -> Diagnosis:
    """Look at a subject; `find_subject` may raise SubjectError or PlaceError."""
    diagnosis = Diagnosis()
    try:
        subject = find_subject()
        diagnosis.subject = subject
        diagnosis.warnings += subject.notes
        goes_on = check_program.check(subject, diagnosis)
        check_preload.check(subject, diagnosis)
        check_environment.check(subject, diagnosis)
        if goes_on:
            check_library.check(subject, diagnosis)
            check_interposed.check(subject, diagnosis)
        check_endpoint.check(subject, diagnosis)
        if goes_on:
            tables = check_need.check(subject, diagnosis)
            check_python.check(subject, diagnosis)
            check_probe.check(subject, diagnosis, tables)
            check_need.judge_tables(diagnosis)
            check_runtime.check(subject, diagnosis)
            check_profiler.check(subject, diagnosis)
        check_installation.check(subject, diagnosis)
        if check_ollama.concerns(subject):
            check_ollama.check(subject, diagnosis)
    except SubjectError as error:
        diagnosis.add(error.kind, str(error), advice=error.advice)
    except PlaceError as error:
        diagnosis.add("unknown", str(error))
    return diagnosis
