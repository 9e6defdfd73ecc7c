"""One thread for what is small, pieces for several threads for what is large."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier, Thread, get_ident
from unittest.mock import patch

import pytest
import torch

import tokencover as tc
from tokencover.covering import choose_diverse, mob_batch
from tokencover.covering.search import estimate, thread_use
from tokencover.covering.search.thread_use import count_threads, do_in_pieces, use_one_thread


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


def test_small_work_is_done_on_one_thread_and_the_number_comes_back() -> None:
    assert count_threads(2**40) == 1  # all threads of torch's own, outside
    with use_one_thread():
        assert torch.get_num_threads() == 1
        assert count_threads(10) == 1
        assert count_threads(2**40) == 2
        with use_one_thread():
            assert count_threads(2**40) == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(tc.InputError), use_one_thread():
        raise tc.InputError("stop")
    assert torch.get_num_threads() == 2


def test_every_place_is_done_once_and_by_both_threads() -> None:
    done, workers, both = torch.zeros(1000), set(), Barrier(2)

    def work(some: slice) -> None:
        if get_ident() not in workers:
            workers.add(get_ident())
            both.wait(timeout=10)  # the second one has come, too
        done[some] += 1

    do_in_pieces(work, len(done), threads=2)
    assert done.eq(1).all()
    assert len(workers) == 2


def test_an_error_in_a_piece_is_told_whoever_does_it() -> None:
    def refuse(some: slice) -> None:
        if some.start > 0:
            raise tc.InputError(f"not from {some.start} on")

    for threads in (2, 3):
        with pytest.raises(tc.InputError, match="not from"):
            do_in_pieces(refuse, 1000, threads)


@pytest.mark.parametrize(("rows", "directions"), [(700, 30), (30, 700), (700, 5)])
def test_products_in_pieces_are_those_in_one_go(rows: int, directions: int) -> None:
    tokens, others = torch.randn(rows, 200), torch.randn(directions, 200)
    with torch.inference_mode(), patch.object(thread_use, "_LARGE", 1), use_one_thread():
        found = estimate._multiply(tokens.clone(), others.clone(), None)
    torch.testing.assert_close(found, tokens @ others.T, rtol=0, atol=1e-3)


def test_large_selections_are_the_same_on_one_thread_and_on_two() -> None:
    visual, prompt = draw_clusters(900)

    def select() -> torch.Tensor:
        batch = visual.unsqueeze(0), prompt.unsqueeze(0)
        [cover] = mob_batch(*batch, budget=90, prompt_budget=30, fold=6)
        return torch.cat(
            [cover.prompt_centers, cover.visual_centers, choose_diverse(visual, budget=40)]
        )

    with patch.object(thread_use, "_LARGE", 2**16), torch.inference_mode():
        shared = select()
    torch.set_num_threads(1)
    assert shared.equal(select())


def test_nothing_of_a_selection_runs_in_torchs_own_parallel_regions() -> None:
    """Each would wait for a thread that has no core: on a busy machine hundreds of time slices."""
    visual, prompt = draw_clusters(300)
    seen = set()
    multiply = estimate._multiply

    def note(*inputs: object) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return multiply(*inputs)  # type: ignore[arg-type]

    with patch.object(estimate, "_multiply", note):
        tc.mob(visual, prompt, budget=60, prompt_budget=20, fold=4)
        tc.nearest_points(visual, prompt, budget=5, fold=2)
        tc.farthest_points(visual, budget=5)
        tc.coupling(visual, prompt)
        choose_diverse(visual, budget=5)
    assert seen == {1}


def test_threads_that_select_at_the_same_time_all_keep_their_number() -> None:
    visual, prompt = draw_clusters(300)
    numbers = []

    def select() -> None:
        torch.get_num_threads()  # only then torch knows this thread, see `thread_use`
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
