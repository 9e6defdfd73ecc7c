"""One thread for what is small, pieces for several threads for what is large."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from threading import Barrier, Event, Thread, get_ident
from unittest.mock import patch

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tokencover as tc
from tokencover.covering import mob_batch, select_diverse, tuning
from tokencover.covering.search import local, vectors
from tokencover.covering.search.scratch import count_threads, on_one_thread, run_in_pieces


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def draw_clusters(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(count)
    centers, home = torch.randn(40, 128), torch.randint(0, 40, (count,))
    return centers[home] + 0.3 * torch.randn(count, 128), torch.randn(5, 128)


def test_small_work_is_done_on_one_thread() -> None:
    assert count_threads(2**40) == 1  # all threads of torch's own, outside

    @on_one_thread
    def work(depth: int) -> list[int]:
        counts = [torch.get_num_threads(), count_threads(10), count_threads(2**40), get_ident()]
        return counts + (work(depth - 1) if depth else [])

    *outer, outer_thread = work(1)[:4]
    assert outer == [1, 1, 2]
    counts = work(1)
    assert counts[4:] == counts[:4]  # a worker does not wait for another one
    assert outer_thread != get_ident()
    assert torch.get_num_threads() == 2


def test_flop_counter_counts_selection_on_threads() -> None:
    inputs, counts = draw_clusters(300), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with FlopCounterMode(display=False) as counter:
            tc.mob(*inputs, budget=60, prompt_budget=20, fold=4)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_errors_of_a_worker_are_raised() -> None:
    @on_one_thread
    def fail() -> None:
        raise tc.InputError("stop")

    with pytest.raises(tc.InputError, match="stop"):
        fail()
    assert torch.get_num_threads() == 2


def test_run_in_pieces_covers_each_row_once() -> None:
    done, workers, both = torch.zeros(1000), set(), Barrier(2)

    def work(some: slice) -> None:
        if get_ident() not in workers:
            workers.add(get_ident())
            both.wait(timeout=10)  # the second one has come, too
        done[some] += 1

    run_in_pieces(work, len(done), threads=2)
    assert done.eq(1).all()
    assert len(workers) == 2


def test_errors_of_a_piece_are_raised() -> None:
    def refuse(some: slice) -> None:
        if some.start > 0:
            raise tc.InputError(f"not from {some.start} on")

    for threads in (2, 3):
        with pytest.raises(tc.InputError, match="not from"):
            run_in_pieces(refuse, 1000, threads)


@pytest.mark.parametrize(("rows", "directions"), [(700, 30), (30, 700), (700, 5)])
def test_products_in_pieces_equal_whole_product(rows: int, directions: int) -> None:
    tokens, others = torch.randn(rows, 200), torch.randn(directions, 200)
    multiply: Callable[..., torch.Tensor] = on_one_thread(vectors.multiply)
    with torch.inference_mode(), patch.object(tuning, "THREADED_PRODUCT", 1):
        found = multiply(tokens.clone(), others.clone(), None)
    torch.testing.assert_close(found, tokens @ others.T, rtol=0, atol=1e-3)


def test_large_selections_equal_on_two_threads() -> None:
    visual, prompt = draw_clusters(900)

    def select() -> torch.Tensor:
        batch = visual.unsqueeze(0), prompt.unsqueeze(0)
        [cover] = mob_batch(*batch, budget=90, prompt_budget=30, fold=6)
        return torch.cat(
            [cover.prompt_centers, cover.visual_centers, select_diverse(visual, budget=40)]
        )

    with patch.object(tuning, "THREADED_PRODUCT", 2**16), torch.inference_mode():
        shared = select()
    torch.set_num_threads(1)
    assert shared.equal(select())


def test_selection_uses_no_torch_parallel_regions() -> None:
    """Each would wait for a thread without a core: on a loaded machine hundreds of time slices."""
    visual, prompt = draw_clusters(300)
    counts = set()
    multiply = vectors.multiply

    def record(*inputs: object) -> torch.Tensor:
        counts.add(torch.get_num_threads())
        return multiply(*inputs)  # type: ignore[arg-type]

    with patch.object(vectors, "multiply", record), patch.object(local, "multiply", record):
        tc.mob(visual, prompt, budget=60, prompt_budget=20, fold=4)
        tc.nearest_points(visual, prompt, budget=5, fold=2)
        tc.farthest_points(visual, budget=5)
        tc.coupling(visual, prompt)
        select_diverse(visual, budget=5)
    assert counts == {1}


def test_concurrent_selections_keep_thread_counts() -> None:
    visual, prompt = draw_clusters(300)
    numbers = []

    def select() -> None:
        torch.set_num_threads(2)
        for _ in range(3):
            tc.mob(visual, prompt, budget=60, prompt_budget=10, fold=4)
        numbers.append(torch.get_num_threads())

    threads = [Thread(target=select) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers == [2, 2, 2]
    assert torch.get_num_threads() == 2


def test_a_selection_changes_no_other_threads_number() -> None:
    """Of threads that are running already, and of new ones, during the selection and after it."""
    visual, prompt = draw_clusters(300)
    inside, may_end = Event(), Event()
    selected, numbers = [], []

    def watch() -> None:
        numbers.append(torch.get_num_threads())
        assert inside.wait(timeout=10)
        numbers.append(torch.get_num_threads())
        may_end.set()
        selecting.join()
        numbers.append(torch.get_num_threads())

    multiply = vectors.multiply

    def pause(*inputs: object) -> torch.Tensor:
        new = Thread(target=lambda: numbers.append(torch.get_num_threads()))
        new.start()
        new.join()
        inside.set()
        assert may_end.wait(timeout=10)
        return multiply(*inputs)  # type: ignore[arg-type]

    def select() -> None:
        torch.set_num_threads(2)
        with patch.object(vectors, "multiply", pause), patch.object(tuning, "THREADED_PRODUCT", 1):
            selected.append(tc.mob(visual, prompt, budget=60, prompt_budget=20, fold=4))
        numbers.append(torch.get_num_threads())

    selecting, watching = Thread(target=select), Thread(target=watch)
    watching.start()
    selecting.start()
    watching.join()
    selecting.join()
    assert len(selected) == 1
    assert set(numbers) == {2}
    new = Thread(target=lambda: numbers.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert numbers[-1] == torch.get_num_threads() == 2


def _select_and_exit(visual: torch.Tensor, prompt: torch.Tensor) -> None:
    cover = tc.mob(visual, prompt, budget=20, prompt_budget=5, fold=2)
    os._exit(len(cover))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_can_select() -> None:
    """It has none of its parent's threads."""
    inputs = draw_clusters(100)
    tc.mob(*inputs, budget=20, prompt_budget=5, fold=2)
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=_select_and_exit, args=inputs)
    child.start()
    child.join(timeout=30)
    code = child.exitcode
    child.kill()
    assert code == 20
