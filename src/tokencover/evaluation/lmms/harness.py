"""Tasks of lmms-eval as ours: its documents, prompts and scores; our runner and results."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError, LoadError, MissingPackageError, TokenCoverError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.lmms.benchmarks import (
    PAPER_BENCHMARKS,
    PREFIX,
    PaperBenchmark,
    check_judge,
    check_login,
    check_packages,
    get_benchmark,
    split_names,
)
from tokencover.evaluation.lmms.media import (
    ShowingSettings,
    extract_question,
    load_medium,
    read_messages,
)
from tokencover.evaluation.lmms.scores import SUBMISSION, HarnessScores
from tokencover.evaluation.own_data import load_tasks, validate_different
from tokencover.evaluation.tasks import Example, Task
from tokencover.lmms_manifest import list_task_folders
from tokencover.prompting import Kind, Medium

GROUP: Final = "lmms"
"""Group of tasks that are not the paper's."""
DEFAULT_LENGTH: Final = 128
"""New tokens where neither lmms-eval nor the paper's list sets them."""


@dataclass(frozen=True)
class HarnessExample(Example):
    """A question of lmms-eval; `show` loads its images and videos when they are used."""

    number: int = -1
    show: Callable[[], Sequence[Medium]] = field(default=tuple, compare=False, repr=False)

    @property
    def media(self) -> tuple[Medium, ...]:
        """Images and videos, in the order of the prompt."""
        return tuple(self.show())


def gather_tasks(
    names: Sequence[str],
    *,
    split: str = "test",
    limit: int | None = None,
    settings: ShowingSettings | None = None,
) -> list[Task]:
    """Load our tasks, see `load_tasks`, and then those of lmms-eval, ``lmms:gqa``.

    `limit` is also the number of questions of a task of lmms-eval, and `settings` is how its
    documents are prepared. Raises `InputError` if lmms-eval, or a package or data that it needs, is
    missing: before a model is loaded.
    """
    ours, theirs = split_names(names)
    validate_different(theirs)
    tasks = load_tasks(ours, split=split, limit=limit) if ours or not theirs else []
    return tasks + (_load_theirs(theirs, limit, settings or ShowingSettings()) if theirs else [])


def describe_settings(
    tasks: Iterable[Task], settings: ShowingSettings, model: VisionLanguageModel
) -> dict[str, Any]:
    """Return the settings that answers to tasks of lmms-eval depend on; empty without such tasks.

    The image processor is named because it resizes differently if torchvision is installed. The
    repetition penalty of some models affects greedy answers too.
    """
    if not any(task.source.startswith(PREFIX) for task in tasks):
        return {}
    processor = getattr(model.processor, "image_processor", model.processor)
    generation = getattr(model.model, "generation_config", None)
    return {
        "lmms": {
            **asdict(settings),
            "image_processor": type(processor).__name__,
            "repetition_penalty": getattr(generation, "repetition_penalty", None) or 1.0,
        }
    }


def read_settings(described: Mapping[str, Any]) -> ShowingSettings:
    """Read the settings of a stored run; see `describe_settings`."""
    kept = described.get("lmms", {})
    names = [each.name for each in fields(ShowingSettings) if each.name in kept]
    return ShowingSettings(**{name: kept[name] for name in names})


def _load_theirs(names: Sequence[str], limit: int | None, settings: ShowingSettings) -> list[Task]:
    if limit is not None and limit < 1:
        raise InputError(f"the limit must be at least 1 example, got {limit}.")
    version = check_packages()
    _suppress_logging()
    manager = _make_manager(names)
    configs = {name: _load_config(manager, name) for name in names}
    check_login(configs.values())
    for config in configs.values():
        check_judge(config)
    # Local data first: a missing video fails before other data are downloaded.
    local = [name for name in names if "class" in configs[name]]
    tasks = {
        name: _HarnessTask(manager, name, version, limit, settings).task
        for name in dict.fromkeys([*local, *names])
    }
    return [tasks[name] for name in names]


def _suppress_logging() -> None:
    """Disable lmms-eval's log, and the bars of datasets."""
    import datasets
    from loguru import logger

    logger.disable("lmms_eval")
    logger.disable("utils")  # functions of its tasks, which it imports by path
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()


def _make_manager(names: Sequence[str]) -> Any:
    """lmms-eval's list of tasks: only the paper's folders if they suffice, which is quick."""
    import lmms_eval.tasks
    from lmms_eval.tasks import TaskManager

    folder = Path(lmms_eval.tasks.__file__).parent
    known = ("gqa", "mmbench", "mme", "ocrbench", "pope", "scienceqa", "vizwiz_vqa", "vqav2")
    suffices = all(get_benchmark(name) or name.startswith("tokencover_") for name in names)
    ours = list_task_folders()
    paths = [*map(str, ours), *(str(folder / each) for each in known if suffices)]
    manager = TaskManager(
        include_path=paths, include_defaults=not suffices, model_name="tokencover"
    )
    for name in names:
        if name not in manager.all_subtasks and not manager._name_is_python_task(name):
            raise InputError(_explain_unknown(manager, name))
    return manager


def _explain_unknown(manager: Any, name: str) -> str:
    """Why there is no task of this name, and similar names."""
    known = {each.name.lower(): each.task for each in PAPER_BENCHMARKS}
    known |= {each.lower(): each for each in manager.all_subtasks}
    if name in manager.all_groups or name in manager.all_tags:
        members = manager._get_config(name).get("task") or manager._get_tasklist(name)
        members = [each for each in members if isinstance(each, str)]
        named = ",".join(PREFIX + each for each in members)
        return f"{name} is several tasks of lmms-eval: name those that you want, {named or 'each'}."
    like = difflib.get_close_matches(name.lower(), known, 5)
    meant = ", ".join(dict.fromkeys(known[each] for each in like))
    hint = f"; it has {meant}" if meant else ", and none with a similar name"
    return f"lmms-eval has no task {name!r}{hint}."


def _load_config(manager: Any, name: str) -> Mapping[str, Any]:
    """The content of a task's file; raises `InputError` for tasks that are not supported."""
    try:
        config: Mapping[str, Any] = manager._get_config(name)
    except ImportError as error:  # of the functions that its file names
        package = error.name or str(error)
        raise MissingPackageError(
            f"{name} of lmms-eval needs the package {package}, which this environment does not "
            f"have: pip install {package.partition('.')[0]}"
        ) from error
    kind = config.get("output_type", "generate_until")
    if kind != "generate_until":
        raise InputError(f"{name} needs {kind}, and only tasks with generated answers can run.")
    metrics = {each.get("metric") for each in config.get("metric_list") or []}
    if metrics == {SUBMISSION}:
        raise InputError(
            f"{name} has answers that only a server scores: lmms-eval's own command with `--model "
            "tokencover` writes the file to submit, see docs/research/reproducing.md."
        )
    check_greedy(name, config.get("generation_kwargs") or {})
    return config


def check_greedy(name: str, settings: Mapping[str, Any]) -> None:
    """Raise `InputError` for a task with sampling or beams."""
    if settings.get("do_sample") or int(settings.get("num_beams") or 1) > 1:
        raise InputError(f"{name} needs beams or sampling, and answers here are greedy.")


def read_generation(settings: Mapping[str, Any], length: int) -> tuple[int, tuple[str, ...]]:
    """Return the length of an answer, by default `length`, and the texts at which it ends."""
    until = settings.get("until") or ()
    stops = (until,) if isinstance(until, str) else tuple(until)
    return int(settings.get("max_new_tokens") or length), stops


class _HarnessTask:
    """A task of lmms-eval with its data."""

    def __init__(
        self, manager: Any, name: str, version: str, limit: int | None, settings: ShowingSettings
    ) -> None:
        self._name, self._version, self._settings = name, version, settings
        self._benchmark = get_benchmark(name)
        self._inner = _load_data(manager, name)
        self._bare = self._inner.eval_docs_no_media
        self._together = together = self._benchmark.together if self._benchmark else 1
        total = len(self._bare)
        self._count = total if limit is None else min(total, -(-limit // together) * together)
        self._scores = HarnessScores(manager, name, self._inner, self._benchmark, self._bare)

    @property
    def task(self) -> Task:
        """The task for our runner."""
        benchmark, generation = self._benchmark, self._inner.config.generation_kwargs or {}
        fixed = benchmark.max_new_tokens if benchmark else None
        length, stops = read_generation(generation, fixed or DEFAULT_LENGTH)
        ends = f"until {' or '.join(map(repr, stops))}, " if stops else ""
        examples = self._examples
        return Task(
            benchmark.name if benchmark else f"lmms:{self._name}",
            benchmark.group if benchmark else GROUP,
            lambda: iter(examples),
            self._scores.score,
            f"lmms-eval {self._version}, {self._name}: {self._count} of {len(self._bare)} "
            f"questions, greedy, up to {length} new tokens, {ends}{_compute_digest(examples)}",
            # Read from the first document of other tasks than the paper's.
            frozenset({benchmark.shows} if benchmark else _list_kinds(self._read(0)[0])),
            length,
            stops,
            self._scores.sum_up,
            benchmark is not None and benchmark.judged,
            PREFIX + self._name,
        )

    @cached_property
    def _examples(self) -> list[HarnessExample]:
        examples = list(self._make_examples())
        together = self._together
        sizes = Counter(example.cluster for example in examples)
        apart = [cluster for cluster, size in sizes.items() if together > 1 and size != together]
        if apart:
            raise InputError(
                f"{self._name} counts questions by {together}, and {apart[0]} has "
                f"{sizes[apart[0]]}: run all of them, or set another --limit."
            )
        return examples

    def _make_examples(self) -> Iterator[HarnessExample]:
        missing: list[str] = []
        for number in range(self._count):
            document = self._bare[number]
            name = _name_document(number, document)
            where = f"{self._name}, document {name}"
            text = self._write_text(number, document)
            question = None
            if self._settings.prompt_words == "question":
                question = extract_question(document, text, where)
            if self._benchmark is not None and self._benchmark.shows == "video":
                urls = [item["url"] for item in self._read(number)[0]]
                missing += [url for url in urls if isinstance(url, str) and not Path(url).is_file()]
            cluster = _get_cluster(document, self._benchmark)
            yield HarnessExample(
                name,
                (),
                text,
                (str(document.get("answer", "")),),
                f"{self._name}/{name if cluster is None else cluster}",
                (),
                question,
                number,
                self._make_reader(number, text, where),
            )
        if missing:
            raise LoadError(
                f"{self._name} lacks the video of {len(missing)} of {self._count} questions, for "
                f"example {missing[0]}: see docs/research/reproducing.md for where its files "
                "belong."
            )

    def _write_text(self, number: int, document: Mapping[str, Any]) -> str:
        if callable(self._inner.config.doc_to_messages):
            return self._read(number)[1]
        return str(self._inner.doc_to_text(document))

    def _read(self, number: int) -> tuple[list[dict[str, Any]], str]:
        document = self._inner.eval_docs[number]
        where = f"{self._name}, document {_name_document(number, document)}"
        return read_messages(self._inner.doc_to_messages(document), where)

    def _make_reader(self, number: int, text: str, where: str) -> Callable[[], Sequence[Medium]]:
        def show() -> list[Medium]:
            items, same = self._read(number)
            if same != text:
                raise InputError(f"{where} has another prompt with its image: {same!r}.")
            return [load_medium(item, self._settings) for item in items]

        return show


def _load_data(manager: Any, name: str) -> Any:
    """The task with its documents, downloaded if necessary."""
    from tenacity import RetryError

    try:
        return manager.load_task_or_group([name], task_type="chat")[name]
    except (Exception, SystemExit) as error:
        reason: Any = error
        if isinstance(error, RetryError):
            reason = error.last_attempt.exception()
        if isinstance(reason, TokenCoverError):
            raise reason from error
        home = os.environ.get("HF_HOME", "~/.cache/huggingface")
        text = " ".join(f"{type(reason).__name__}: {reason}".split())
        raise LoadError(
            f"Could not load the dataset for {name}: {text}. Looked on the Hugging Face Hub and in "
            f"HF_HOME={home}. See docs/research/reproducing.md."
        ) from error


def _name_document(number: int, document: Mapping[str, Any]) -> str:
    """Its number, with its name in the dataset."""
    name = document.get("question_id", document.get("index"))
    return f"{number}" if name is None else f"{number}:{name}"


def _get_cluster(document: Mapping[str, Any], benchmark: PaperBenchmark | None) -> str | None:
    """The value that questions about one image share; copies of MMBench share their number."""
    value = document.get(benchmark.cluster) if benchmark is not None and benchmark.cluster else None
    if benchmark is not None and benchmark.cluster == "index" and value is not None:
        return str(int(value) % 1_000_000)
    return None if value is None else str(value)


def _list_kinds(media: Sequence[Mapping[str, Any]]) -> set[Kind]:
    return {"image" if item["type"] == "image" else "video" for item in media}


def _compute_digest(examples: Sequence[Example]) -> str:
    """A digest of questions and reference answers: other data are another version."""
    digest = hashlib.sha256()
    for each in examples:
        digest.update(repr((each.id, each.question, each.answers, each.prompt_words)).encode())
    return digest.hexdigest()[:12]
