"""`tc.evaluate`: methods at budgets on data, and what came of it."""

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
from tokencover.evaluation.judging import keep_questions
from tokencover.evaluation.lmms import ShowingSettings, describe_settings, gather_tasks
from tokencover.evaluation.own_data import make_task
from tokencover.evaluation.plan import Combination, EvaluationPlan, Work, make_combinations
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.result_rows import collect
from tokencover.evaluation.results import Results, choose_reference
from tokencover.evaluation.results_folder import ResultsFolder
from tokencover.evaluation.results_memory import ResultsInMemory, ResultsStore
from tokencover.evaluation.runner import AskingSettings, do_work, find_unfinished
from tokencover.evaluation.shared_results import SharedResults
from tokencover.evaluation.tasks import Task, check_files
from tokencover.methods import Method, Spec, parse_method, parse_methods
from tokencover.pruning import get_tensor_parallel_group

Methods = str | Method | Sequence[str | Method | Spec]
TaskSource = str | Path | Task | Iterable[str | Path | Task | Mapping[str, Any]]
"""What `tasks` takes: names, paths, tasks, or rows with a question each."""
OWN_ROWS = "data"
"""What the task is called that is made of rows."""
USUAL = ShowingSettings()
"""How lmms-eval's questions are shown if nothing else is said."""
FindTasks = Callable[[Sequence[str]], list[Task]]
"""Finds tasks by their names."""
OpenProgress = Callable[[int], Progress]
"""Makes what is told how far it is, from the number of units of work."""


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
    data: TaskSource | None = None,
) -> Results:
    """Compare methods at budgets with the model as it is: what pruning costs and gains.

    Parameters
    ----------
    model, processor
        As ``from_pretrained`` returns them; or, without a processor, the name of a model, or a
        function that loads a `VisionLanguageModel`, which is called once everything is checked.
    methods : str, Method, or sequence of them
        ``"mob,fastv:after=3"``, or methods like ``tc.MoB(64)``, which have their budgets.
    budgets : int or float, or sequence of them
        Counts or shares, for methods that have none of their own.
    tasks : str, path, or rows
        Names as `tokencover.evaluation.find_tasks` takes them, or rows like ``{"image": picture,
        "question": "...", "answers": ["..."]}``; by default pebble's questions.
    split, limit, budget_mode
        Of pebble's questions; how many examples; what budgets count.
    reference : str, optional
        The method that others are compared with; by default MoB, or else the first.
    batch_size, max_new_tokens, keep_going, timing_batches
        Examples answered together; length of an answer; whether an example that fails is counted
        instead of ending the run; batches to time first tokens with, none by default.
    out, part
        A folder of results, which a run that was interrupted goes on with; which part of how many.
    progress, showing
        Makes a `Progress` from the number of units, by default nothing is told; how questions of
        lmms-eval (``tasks="lmms:gqa"``) are shown.
    data
        The earlier name of `tasks`.
    """
    tasks = _choose_name(tasks, data)
    find = partial(gather_tasks, split=split, limit=limit, settings=showing)
    settings = AskingSettings(batch_size, max_new_tokens, keep_going)
    plan = _make_plan(model, methods, budgets, budget_mode, tasks, find, limit, timing_batches)
    compared, share = check_reference(plan.combinations, reference), plan.share(*part)
    if not keep_going:
        _check_own_files(plan.tasks)
    asked = _take_model(model, processor)
    asked.check(plan.tasks)
    described = {"split": split, "limit": limit, **describe_settings(plan.tasks, showing, asked)}
    folder, told = None if out is None else Path(out), progress or _stay_silent
    with _prepare(asked):
        store = do_unfinished(asked, share, folder, settings, described, timing_batches, told, part)
    return _sum_up(plan, store, compared)


def _choose_name(tasks: TaskSource | None, data: TaskSource | None) -> TaskSource | None:
    if tasks is not None and data is not None:
        raise InputError("data is the earlier name of tasks: give tasks alone.")
    return data if tasks is None else tasks


def do_unfinished(
    model: VisionLanguageModel,
    work: Sequence[Work],
    folder: Path | None,
    settings: AskingSettings,
    described: Mapping[str, Any],
    timing_batches: int,
    open_progress: OpenProgress,
    part: tuple[int, int] = (0, 1),
) -> ResultsStore:
    """Do those units of work that a folder has no results of.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned.
    work : sequence of Work
        In this order.
    folder : Path, optional
        Where the results are and go; None for nowhere.
    settings : AskingSettings
        How to ask.
    described : mapping
        Which examples the tasks were made of.
    timing_batches : int
        How many batches time a first token.
    open_progress : callable
        Makes what is told how far it is.
    part : (int, int)
        Which part of how many the work is.
    """
    asking = {"batch_size": settings.batch_size, "max_new_tokens": settings.max_new_tokens}
    run = describe_run(model, **described, **asking)
    ranks = get_tensor_parallel_group(model.model)
    is_first = ranks is None or ranks.is_first

    def open_results() -> ResultsStore:
        return ResultsInMemory(run) if folder is None else ResultsFolder.open(folder, run)

    results: Any = open_results() if ranks is None else SharedResults(ranks, open_results)
    with results.claim(*part):
        left = find_unfinished(work, results)
        if folder is not None and is_first:
            keep_questions(folder, (unit.task for unit in left))
        progress = (open_progress if is_first else _stay_silent)(len(left))
        if len(left) < len(work):
            progress.note(f"{len(work) - len(left)} of {len(work)} are done already, going on")
        try:
            do_work(model, left, results, settings, progress, timing_batches=timing_batches)
        except KeyboardInterrupt:
            if folder is not None:
                progress.note("what is done is kept, and the same command goes on from there")
            raise
        finally:
            progress.close()
    store: ResultsStore = results
    return store


def check_reference(combinations: Sequence[Combination], reference: str | None) -> str:
    """The method that others are compared with.

    Raises
    ------
    InputError
        If it was named, and is none of the methods.
    """
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
    find: FindTasks,
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
    tasks = tuple(_load_tasks(given, find, limit))
    if not tasks:
        raise InputError("there is nothing to ask: give for example tasks='pebble'.")
    return EvaluationPlan(combinations, tasks, timed=timing_batches > 0)


def _list_methods(methods: Methods) -> list[Spec | Method]:
    if isinstance(methods, str):
        return list(parse_methods(methods))
    given = [methods] if isinstance(methods, Method) else methods
    return [parse_method(each) if isinstance(each, str) else each for each in given]


def _load_tasks(source: TaskSource, find: FindTasks, limit: int | None) -> list[Task]:
    if isinstance(source, str):
        names = [part.strip() for part in source.split(",") if part.strip()]
        return find(names)
    given = [source] if isinstance(source, Path | Task) else list(source)
    if given and all(isinstance(each, Mapping) for each in given):
        return [make_task(given, OWN_ROWS, limit=limit)]  # type: ignore[arg-type]
    if all(isinstance(each, str | Path) for each in given):
        return find([str(each) for each in given])  # at once: what is missing is told of all
    found: list[Task] = []
    for each in given:
        if isinstance(each, Mapping):
            raise InputError("tasks are rows or names, not both.")
        if isinstance(each, Task):
            found.append(each)
        else:
            found += find([str(each)])
    return found


def _check_own_files(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if task.name == OWN_ROWS or Path(task.source).is_file():
            check_files(task)


def _take_model(model: Any, processor: Any) -> VisionLanguageModel:
    if isinstance(model, VisionLanguageModel):
        return model
    if isinstance(model, str):
        return load_model(model)
    if callable(model) and not isinstance(model, nn.Module):
        loaded: VisionLanguageModel = model()
        return loaded
    if processor is None:
        raise InputError(
            "a model needs its processor to be asked: evaluate(model, processor, ...), or give the "
            "model's name."
        )
    return VisionLanguageModel(_name_model(model), model, processor)


def _name_model(model: Any) -> str:
    """What a loaded model was loaded by, as far as it says."""
    if isinstance(model, VisionLanguageModel):
        return model.name
    place = str(getattr(getattr(model, "config", None), "name_or_path", ""))
    # A model without a folder has its name as name_or_path.
    bundled = [entry.name for entry in MODELS if entry.folder and place == str(entry.folder)]
    return bundled[0] if bundled else place or type(model).__name__


@contextmanager
def _prepare(asked: VisionLanguageModel) -> Iterator[None]:
    """Pad on the left and switch dropout off meanwhile; the caller's objects stay as they were."""
    tokenizer, network = asked.processor.tokenizer, asked.model
    side, training = tokenizer.padding_side, network.training
    tokenizer.padding_side = "left"
    network.eval()
    try:
        yield
    finally:
        tokenizer.padding_side = side
        network.train(training)


def _sum_up(plan: EvaluationPlan, store: ResultsStore, reference: str) -> Results:
    groups = {task.name: task.group for task in plan.tasks}
    sources = {task.name: task.source for task in plan.tasks if task.source}
    about = {task.name: task.version for task in plan.tasks}
    return Results(store.run, groups, tuple(collect(plan, store)), reference, sources, about)


def _stay_silent(units: int) -> Progress:
    return Progress(io.StringIO(), units)
