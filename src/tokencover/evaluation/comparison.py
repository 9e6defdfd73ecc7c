"""`tc.evaluate`: compare methods at budgets on tasks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from tokencover.budget import Budget, BudgetMode
from tokencover.bundled_models import MODELS, get_default_tasks
from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel, describe_run, load_model
from tokencover.evaluation.judging import save_questions
from tokencover.evaluation.lmms import ShowingSettings, describe_settings, gather_tasks
from tokencover.evaluation.own_data import make_task
from tokencover.evaluation.plan import Combination, EvaluationPlan, Work, make_combinations
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.results import Results, choose_reference
from tokencover.evaluation.runner import GenerationSettings, do_work, list_pending_units
from tokencover.evaluation.scoring import collect
from tokencover.evaluation.store import ResultsFolder, ResultsInMemory, ResultsStore, SharedResults
from tokencover.evaluation.tasks import Task, check_files
from tokencover.methods import Method, Spec, parse_method, parse_methods
from tokencover.pruning import get_tensor_parallel_group

Methods = str | Method | Sequence[str | Method | Spec]
TaskSource = str | Path | Task | Iterable[str | Path | Task | Mapping[str, Any]]
"""Names, paths, tasks, or rows with one question per row."""
OWN_ROWS = "data"
"""Name of the task that is built from rows."""
USUAL = ShowingSettings()
LoadTasks = Callable[[Sequence[str]], list[Task]]
"""From names to tasks."""
OpenProgress = Callable[[int], Progress]
"""From the number of units of work to a progress display."""


def evaluate(
    model: Any,
    processor: Any = None,
    *,
    methods: Methods = (),
    budgets: Budget | Sequence[Budget] = (),
    tasks: TaskSource | None = None,
    split: str = "test",
    limit: int | None = None,
    budget_mode: BudgetMode = "exact",
    reference: str | None = None,
    batch_size: int = 16,
    max_new_tokens: int = 16,
    keep_going: bool = False,
    timing_batches: int = 0,
    out: str | Path | None = None,
    part: tuple[int, int] = (0, 1),
    progress: OpenProgress | None = None,
    showing: ShowingSettings = USUAL,
) -> Results:
    """Compare methods at budgets with the unpruned model: accuracy and cost.

    Parameters
    ----------
    model, processor
        As ``from_pretrained`` returns them; or, without a processor, the name of a model, or a
        function that loads a `VisionLanguageModel`, which is called after all settings are checked.
    methods : str, Method, or sequence of them
        ``"mob,fastv:after=3"``, or methods like ``tc.MoB(64)``, which set their budgets.
    budgets : int or float, or sequence of them
        Counts or fractions, for methods that do not set theirs.
    tasks : str, path, or rows
        Names as `tokencover.evaluation.load_tasks` takes them, or rows like ``{"image": image,
        "question": "...", "answers": ["..."]}``; by default pebble's questions.
    split, limit, budget_mode
        Split of pebble's questions; maximum number of examples; what budgets count.
    reference : str, optional
        The method that others are compared with; by default MoB, or else the first.
    batch_size, max_new_tokens, keep_going, timing_batches
        Examples answered together; length of an answer; whether an example that fails is counted
        instead of ending the run; batches to time first tokens with, none by default.
    out, part
        A folder of results, in which an interrupted run resumes; which part of how many.
    progress, showing
        A function from the number of units to a `Progress`, by default silent; how questions of
        lmms-eval (``tasks="lmms:gqa"``) are prepared.
    """
    load = partial(gather_tasks, split=split, limit=limit, settings=showing)
    settings = GenerationSettings(batch_size, max_new_tokens, keep_going)
    plan = _make_plan(model, methods, budgets, budget_mode, tasks, load, limit, timing_batches)
    compared, work = resolve_reference(plan.combinations, reference), plan.share(*part)
    for task in () if keep_going else plan.tasks:
        if task.name == OWN_ROWS or Path(task.source).is_file():
            check_files(task)
    loaded = _resolve_model(model, processor)
    loaded.check(plan.tasks)
    described = {"split": split, "limit": limit, **describe_settings(plan.tasks, showing, loaded)}
    folder, show = None if out is None else Path(out), progress or _open_silent
    with _prepare(loaded):
        store = do_unfinished(loaded, work, folder, settings, described, timing_batches, show, part)
    return _collect_results(plan, store, compared)


def do_unfinished(
    model: VisionLanguageModel,
    work: Sequence[Work],
    folder: Path | None,
    settings: GenerationSettings,
    described: Mapping[str, Any],
    timing_batches: int,
    open_progress: OpenProgress,
    part: tuple[int, int] = (0, 1),
) -> ResultsStore:
    """Run the units of work that have no result yet, and return the store of all results.

    `folder` is None for results in memory, `described` has the settings that the tasks depend on,
    and `part` is the index and number of parts of the work.
    """
    generation = {"batch_size": settings.batch_size, "max_new_tokens": settings.max_new_tokens}
    run = describe_run(model, **described, **generation)
    ranks = get_tensor_parallel_group(model.model)
    is_first = ranks is None or ranks.is_first

    def open_results() -> ResultsStore:
        return ResultsInMemory(run) if folder is None else ResultsFolder.open(folder, run)

    results: Any = open_results() if ranks is None else SharedResults(ranks, open_results)
    with results.claim(*part):
        pending = list_pending_units(work, results)
        if folder is not None and is_first:
            save_questions(folder, (unit.task for unit in pending))
        progress = (open_progress if is_first else _open_silent)(len(pending))
        if len(pending) < len(work):
            progress.note(f"{len(work) - len(pending)} of {len(work)} are done already, going on")
        try:
            do_work(model, pending, results, settings, progress, timing_batches=timing_batches)
        except KeyboardInterrupt:
            if folder is not None:
                progress.note("finished units are saved, and the same command resumes there")
            raise
        finally:
            progress.close()
    store: ResultsStore = results
    return store


def resolve_reference(combinations: Sequence[Combination], reference: str | None) -> str:
    """Return the method that others are compared with; `InputError` if it is not a method here."""
    labels = [each.label for each in combinations if each.method is not None]
    if reference is None:
        return choose_reference(labels)
    for each in combinations:
        if each.method is not None and (each.goes_by(reference) or each.method.name == reference):
            return reference
    raise InputError(
        f"nothing can be compared with {reference!r}: there are no results of it, only of "
        f"{', '.join(dict.fromkeys(labels)) or 'the unpruned model'}. Name one of these as "
        "reference, or evaluate it too."
    )


def _make_plan(
    model: Any,
    methods: Methods,
    budgets: Budget | Sequence[Budget],
    budget_mode: BudgetMode,
    given: TaskSource | None,
    load: LoadTasks,
    limit: int | None,
    timing_batches: int,
) -> EvaluationPlan:
    if timing_batches < 0:
        raise InputError(f"timing_batches must be 0 or more, got {timing_batches}.")
    counts = [budgets] if isinstance(budgets, int | float) else list(budgets)
    # Before the tasks, whose data may have to be downloaded.
    combinations = make_combinations(_list_methods(methods), counts, budget_mode)
    if given is None:
        given = get_default_tasks(model if isinstance(model, str) else _name_model(model))
    tasks = tuple(_load_tasks(given, load, limit))
    if not tasks:
        raise InputError("there are no tasks: give for example tasks='pebble'.")
    return EvaluationPlan(combinations, tasks, timed=timing_batches > 0)


def _list_methods(methods: Methods) -> list[Spec | Method]:
    if isinstance(methods, str):
        return list(parse_methods(methods))
    given = [methods] if isinstance(methods, Method) else methods
    return [parse_method(each) if isinstance(each, str) else each for each in given]


def _load_tasks(source: TaskSource, load: LoadTasks, limit: int | None) -> list[Task]:
    if isinstance(source, str):
        return load([part.strip() for part in source.split(",") if part.strip()])
    given = [source] if isinstance(source, Path | Task) else list(source)
    if given and all(isinstance(each, Mapping) for each in given):
        return [make_task(given, OWN_ROWS, limit=limit)]  # type: ignore[arg-type]
    if all(isinstance(each, str | Path) for each in given):
        return load([str(each) for each in given])  # all at once: one error names all missing
    tasks: list[Task] = []
    for each in given:
        if isinstance(each, Mapping):
            raise InputError("tasks are rows or names, not both.")
        tasks += [each] if isinstance(each, Task) else load([str(each)])
    return tasks


def _resolve_model(model: Any, processor: Any) -> VisionLanguageModel:
    if isinstance(model, VisionLanguageModel):
        return model
    if isinstance(model, str):
        return load_model(model)
    if callable(model) and not isinstance(model, nn.Module):
        loaded: VisionLanguageModel = model()
        return loaded
    if processor is None:
        raise InputError(
            "a model needs its processor: evaluate(model, processor, ...), or give the model's "
            "name."
        )
    return VisionLanguageModel(_name_model(model), model, processor)


def _name_model(model: Any) -> str:
    """The name that a model was loaded by, as far as it is known."""
    if isinstance(model, VisionLanguageModel):
        return model.name
    path = str(getattr(getattr(model, "config", None), "name_or_path", ""))
    # A model without a folder has its name as name_or_path.
    bundled = [entry.name for entry in MODELS if entry.folder and path == str(entry.folder)]
    return bundled[0] if bundled else path or type(model).__name__


@contextmanager
def _prepare(loaded: VisionLanguageModel) -> Iterator[None]:
    """Pad on the left without dropout; the caller's objects are restored at the end."""
    tokenizer, network = loaded.processor.tokenizer, loaded.model
    side, training = tokenizer.padding_side, network.training
    tokenizer.padding_side = "left"
    network.eval()
    try:
        yield
    finally:
        tokenizer.padding_side = side
        network.train(training)


def _collect_results(plan: EvaluationPlan, store: ResultsStore, reference: str) -> Results:
    groups = {task.name: task.group for task in plan.tasks}
    sources = {task.name: task.source for task in plan.tasks if task.source}
    about = {task.name: task.version for task in plan.tasks}
    return Results(store.run, groups, tuple(collect(plan, store)), reference, sources, about)


def _open_silent(units: int) -> Progress:
    return Progress(io.StringIO(), units)
