"""Tasks of lmms-eval as tasks of ours: its documents, prompts, scores; our runner and results."""

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
from tokencover.evaluation.lmms.harness_scores import SUBMISSION, HarnessScores
from tokencover.evaluation.lmms.paper_benchmarks import (
    PAPER_BENCHMARKS,
    PREFIX,
    PaperBenchmark,
    find_benchmark,
    split_names,
)
from tokencover.evaluation.lmms.preflight import check_judge, check_login, check_packages
from tokencover.evaluation.lmms.shown_media import (
    ShowingSettings,
    find_question,
    list_media_kinds,
    load_medium,
    read_messages,
)
from tokencover.evaluation.task_files import find_tasks
from tokencover.evaluation.tasks import Example, Task
from tokencover.lmms_manifest import list_task_folders
from tokencover.prompting import Kind, Medium

GROUP: Final = "lmms"
"""Of tasks that are none of the paper's."""
DEFAULT_LENGTH: Final = 128
"""New tokens where neither lmms-eval nor the paper's list says it."""


@dataclass(frozen=True)
class HarnessExample(Example):
    """A question of lmms-eval; its pictures are read when they are asked for.

    Attributes
    ----------
    number : int
        Of its document.
    show : callable
        Reads pictures and clips.
    """

    number: int = -1
    show: Callable[[], Sequence[Medium]] = field(default=tuple, compare=False, repr=False)

    @property
    def media(self) -> tuple[Medium, ...]:
        """Pictures and clips, in the order in which the prompt shows them."""
        return tuple(self.show())


def gather_tasks(
    names: Sequence[str],
    *,
    split: str = "test",
    limit: int | None = None,
    settings: ShowingSettings | None = None,
) -> list[Task]:
    """Tasks of ours, see `find_tasks`, and of lmms-eval, ``lmms:gqa``, which come after them.

    Parameters
    ----------
    names : sequence of str
        Of both kinds.
    split, limit : str, int
        As for `find_tasks`; `limit` is also the number of questions of a task of lmms-eval.
    settings : ShowingSettings, optional
        How documents of lmms-eval are shown.

    Raises
    ------
    InputError
        If lmms-eval or what it needs is missing, or the data of a task: all before a model is
        loaded.
    """
    ours, theirs = split_names(names)
    repeated = sorted({name for name in theirs if theirs.count(name) > 1})
    if repeated:
        raise InputError(f"tasks must have different names; given twice: {', '.join(repeated)}.")
    found = find_tasks(ours, split=split, limit=limit) if ours or not theirs else []
    return found + (_load_tasks(theirs, limit, settings or ShowingSettings()) if theirs else [])


def describe_settings(
    tasks: Iterable[Task], settings: ShowingSettings, model: VisionLanguageModel
) -> dict[str, Any]:
    """What answers to tasks of lmms-eval depend on; nothing if there are none among `tasks`.

    The image processor is named: it takes another way of resizing if torchvision is there. Some
    models come with a penalty for words that were said before, which greedy answers feel too.
    """
    if not any(each.source.startswith(PREFIX) for each in tasks):
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
    """How documents were shown, from the settings of a run; see `describe_settings`."""
    kept = described.get("lmms", {})
    names = [each.name for each in fields(ShowingSettings) if each.name in kept]
    return ShowingSettings(**{name: kept[name] for name in names})


def _load_tasks(names: Sequence[str], limit: int | None, settings: ShowingSettings) -> list[Task]:
    if limit is not None and limit < 1:
        raise InputError(f"at least 1 example must be asked, got a limit of {limit}.")
    version = check_packages()
    _be_quiet()
    manager = _make_manager(names)
    configs = {name: _find_config(manager, name) for name in names}
    check_login(configs.values())
    for config in configs.values():
        check_judge(config)
    # What lies here comes first: a video that is missing is told before others are downloaded.
    local = [name for name in names if "class" in configs[name]]
    found = {
        name: _HarnessTask(manager, name, version, limit, settings).task
        for name in dict.fromkeys([*local, *names])
    }
    return [found[name] for name in names]


def _be_quiet() -> None:
    """Leave out lmms-eval's own log, and the bars of datasets."""
    import datasets
    from loguru import logger

    logger.disable("lmms_eval")
    logger.disable("utils")  # functions of its tasks, which it imports by path
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()


def _make_manager(names: Sequence[str]) -> Any:
    """lmms-eval's list of tasks: of the paper's folders alone if they suffice, which is quick."""
    import lmms_eval.tasks
    from lmms_eval.tasks import TaskManager

    folder = Path(lmms_eval.tasks.__file__).parent
    known = ("gqa", "mmbench", "mme", "ocrbench", "pope", "scienceqa", "vizwiz_vqa", "vqav2")
    suffices = all(find_benchmark(name) or name.startswith("tokencover_") for name in names)
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
    """Why a task cannot be asked by this name, and which name is meant."""
    known = {each.name.lower(): each.task for each in PAPER_BENCHMARKS}
    known |= {each.lower(): each for each in manager.all_subtasks}
    if name in manager.all_groups or name in manager.all_tags:
        members = manager._get_config(name).get("task") or manager._get_tasklist(name)
        members = [each for each in members if isinstance(each, str)]
        named = ",".join(PREFIX + each for each in members)
        return f"{name} is several tasks of lmms-eval: name those that you want, {named or 'each'}."
    like = difflib.get_close_matches(name.lower(), known, 5)
    meant = ", ".join(dict.fromkeys(known[each] for each in like))
    hint = f"; it has {meant}" if meant else ", and none with a name like it"
    return f"lmms-eval has no task {name!r}{hint}."


def _find_config(manager: Any, name: str) -> Mapping[str, Any]:
    """What a task's file says; refuses what we cannot ask."""
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
        raise InputError(f"{name} wants {kind}, and only tasks that want an answer can be asked.")
    metrics = {each.get("metric") for each in config.get("metric_list") or []}
    if metrics == {SUBMISSION}:
        raise InputError(
            f"{name} has answers that only a server scores: lmms-eval's own command with `--model "
            "tokencover` writes the file to submit, see docs/reproducing.md."
        )
    check_greedy(name, config.get("generation_kwargs") or {})
    return config


def check_greedy(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a task that wants its answers generated in another way than we do."""
    if settings.get("do_sample") or int(settings.get("num_beams") or 1) > 1:
        raise InputError(f"{name} wants beams or sampling, and answers here are greedy.")


class _HarnessTask:
    """A task of lmms-eval with its data.

    Parameters
    ----------
    manager : TaskManager
        Where it is listed.
    name, version : str
        Of the task, and of lmms-eval.
    limit : int, optional
        How many questions, from the first.
    settings : ShowingSettings
        How they are shown.
    """

    def __init__(
        self, manager: Any, name: str, version: str, limit: int | None, settings: ShowingSettings
    ) -> None:
        self._name, self._version, self._settings = name, version, settings
        self._benchmark = find_benchmark(name)
        self._inner = _load_data(manager, name)
        self._bare = self._inner.eval_docs_no_media
        together = self._benchmark.together if self._benchmark else 1
        total = len(self._bare)
        self._count = total if limit is None else min(total, -(-limit // together) * together)
        self._scores = HarnessScores(manager, name, self._inner, self._benchmark, self._bare)

    @property
    def task(self) -> Task:
        """What our runner takes."""
        benchmark, generation = self._benchmark, self._inner.config.generation_kwargs or {}
        fixed = benchmark.max_new_tokens if benchmark else None
        length = int(generation.get("max_new_tokens") or fixed or DEFAULT_LENGTH)
        until = generation.get("until") or ()
        stops = (until,) if isinstance(until, str) else tuple(until)
        examples = self._examples
        return Task(
            benchmark.name if benchmark else f"lmms:{self._name}",
            benchmark.group if benchmark else GROUP,
            lambda: iter(examples),
            self._scores.score,
            f"lmms-eval {self._version}, {self._name}: {self._count} of {len(self._bare)} "
            f"questions, greedy, up to {length} new tokens, {_tell_stops(stops)}"
            f"{_take_digest(examples)}",
            self._shows,
            length,
            stops,
            self._scores.sum_up,
            benchmark is not None and benchmark.judged,
            PREFIX + self._name,
        )

    @cached_property
    def _examples(self) -> list[HarnessExample]:
        found = list(self._make_examples())
        together = self._benchmark.together if self._benchmark else 1
        sizes = Counter(each.cluster for each in found)
        apart = [cluster for cluster, size in sizes.items() if together > 1 and size != together]
        if apart:
            raise InputError(
                f"{self._name} counts questions by {together}, and {apart[0]} has "
                f"{sizes[apart[0]]}: ask all of them, or another --limit."
            )
        return found

    @property
    def _shows(self) -> frozenset[Kind]:
        """What the paper's benchmarks show is known; of others the first document tells it."""
        if self._benchmark is not None:
            return frozenset({self._benchmark.shows})
        return list_media_kinds(self._read(0)[0])

    def _make_examples(self) -> Iterator[HarnessExample]:
        missing: list[str] = []
        for number in range(self._count):
            document = self._bare[number]
            name = _name_document(number, document)
            where = f"{self._name}, document {name}"
            text = self._write_text(number, document)
            words = None
            if self._settings.prompt_words == "question":
                words = find_question(document, text, where)
            if self._benchmark is not None and self._benchmark.shows == "video":
                missing += self._find_missing(number)
            cluster = _find_cluster(document, self._benchmark)
            yield HarnessExample(
                name,
                (),
                text,
                (str(document.get("answer", "")),),
                f"{self._name}/{name if cluster is None else cluster}",
                (),
                words,
                number,
                self._make_reader(number, text, where),
            )
        if missing:
            raise LoadError(
                f"{self._name} lacks the video of {len(missing)} of {self._count} questions, for "
                f"example {missing[0]}: see docs/reproducing.md for where its files belong."
            )

    def _write_text(self, number: int, document: Mapping[str, Any]) -> str:
        if callable(self._inner.config.doc_to_messages):
            return self._read(number)[1]
        return str(self._inner.doc_to_text(document))

    def _find_missing(self, number: int) -> list[str]:
        urls = [item["url"] for item in self._read(number)[0]]
        return [url for url in urls if isinstance(url, str) and not Path(url).is_file()]

    def _read(self, number: int) -> tuple[list[dict[str, Any]], str]:
        document = self._inner.eval_docs[number]
        where = f"{self._name}, document {_name_document(number, document)}"
        return read_messages(self._inner.doc_to_messages(document), where)

    def _make_reader(self, number: int, text: str, where: str) -> Callable[[], Sequence[Medium]]:
        def show() -> list[Medium]:
            items, words = self._read(number)
            if words != text:
                raise InputError(f"{where} is asked in other words with its picture: {words!r}.")
            return [load_medium(item, self._settings) for item in items]

        return show


def _load_data(manager: Any, name: str) -> Any:
    """The task with its documents, downloaded if need be."""
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
            f"the data of {name} cannot be had ({text}). It is looked for on the Hugging Face hub "
            f"and in HF_HOME, which is {home}: docs/reproducing.md says what it wants."
        ) from error


def _name_document(number: int, document: Mapping[str, Any]) -> str:
    """Its number, with the name that the data set gives it."""
    name = document.get("question_id", document.get("index"))
    return f"{number}" if name is None else f"{number}:{name}"


def _find_cluster(document: Mapping[str, Any], benchmark: PaperBenchmark | None) -> str | None:
    """What questions about one picture share; copies of a question of MMBench share its number."""
    value = document.get(benchmark.cluster) if benchmark is not None and benchmark.cluster else None
    if benchmark is not None and benchmark.cluster == "index" and value is not None:
        return str(int(value) % 1_000_000)
    return None if value is None else str(value)


def _tell_stops(stops: Sequence[str]) -> str:
    return f"until {' or '.join(map(repr, stops))}, " if stops else ""


def _take_digest(examples: Sequence[Example]) -> str:
    """Of all that is asked, and of the right answers: another data set is another version."""
    digest = hashlib.sha256()
    for each in examples:
        digest.update(repr((each.id, each.question, each.answers, each.prompt_words)).encode())
    return digest.hexdigest()[:12]
