"""What visitors get: correct answers, from a model that is never left pruned."""

import json
import socket
import threading
from pathlib import Path

import pytest
from PIL import Image

import tokencover as tc
from tokencover.errors import InputError, TokenCoverError
from tokencover.studio.backend import StudioBackend, StudioModel, StudioRequest, build_studio_method
from tokencover.studio.facts import judge_answer
from tokencover.studio.link import Setup
from tokencover.studio.opening import get_free_port, validate_port

QUESTION = "is there a yellow star ?"


@pytest.fixture(scope="module")
def desk() -> StudioModel:
    return StudioModel("pebble", *tc.load_pebble(), max_new_tokens=4)


@pytest.fixture
def backend(desk: StudioModel) -> StudioBackend:
    return StudioBackend("pebble", {"image": lambda: desk}, max_pixels=1_000_000)


def test_an_answer_tells_what_was_kept(backend: StudioBackend) -> None:
    page = backend.answer(StudioRequest(Setup(question=QUESTION, budget=32, other="fastv:after=1")))
    (kept, facts), (other_kept, other_facts) = page.sides
    assert kept.count("<rect") == other_kept.count("<rect") == 32
    assert "32 of 576" in facts
    assert "fastv:after=1" in other_facts
    assert page.visual_tokens == 576
    told = json.loads(json.dumps(page.facts))
    assert [each["method"] for each in told["answers"]] == ["mob", "fastv:after=1"]
    assert len(told["answers"][0]["trace"]["kept"]) == 32
    assert page.sheet.width > 400


def test_without_a_second_method_its_side_stays_empty(backend: StudioBackend) -> None:
    page = backend.answer(StudioRequest(Setup(question=QUESTION)))
    assert page.sides[1] == ("", "")


def test_the_right_answer_is_told_for_drawn_scenes_only(
    backend: StudioBackend, tmp_path: Path
) -> None:
    own = tmp_path / "own.png"
    Image.new("RGB", (80, 60), "red").save(own)
    question = backend.list_questions("image", 5)[0]
    drawn = backend.answer(StudioRequest(Setup(question=question, scene=5)))
    brought = backend.answer(StudioRequest(Setup(question=question, scene=5), image=str(own)))
    assert "<th>right</th>" in drawn.sides[0][1]
    assert "<th>right</th>" not in brought.sides[0][1]


def test_text_of_visitors_stays_text(desk: StudioModel) -> None:
    from tokencover.studio.facts import render_answer
    from tokencover.visualization import Answer

    bad = "<script>alert('x')</script>\"&"
    answer = Answer(bad, 1.0, None, [bad])
    page = render_answer(bad, answer, answer, bad)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        (Setup(question="   "), "empty"),
        (Setup(question=QUESTION, method="nonsense"), "nonsense"),
        (Setup(question=QUESTION, method="mob,fastv"), "one method"),
        (Setup(question=QUESTION, method="mob:spilt=paper"), "spilt"),
        (Setup(question=QUESTION, after=99), "99"),
        (Setup(question=QUESTION, split="half"), "half"),
        (Setup(question=QUESTION, medium="video"), "does not take video"),
    ],
)
def test_what_cannot_be_done_is_told_and_leaves_the_model_alone(
    backend: StudioBackend, setup: Setup, told: str
) -> None:
    with pytest.raises(TokenCoverError, match=told):
        backend.answer(StudioRequest(setup))
    page = backend.answer(StudioRequest(Setup(question=QUESTION)))
    assert "64 of 576" in page.sides[0][1]


def test_too_many_pixels_are_refused_before_they_are_unpacked(
    desk: StudioModel, tmp_path: Path
) -> None:
    large = tmp_path / "large.png"
    Image.new("1", (1100, 1000)).save(large)
    backend = StudioBackend("pebble", {"image": lambda: desk}, max_pixels=1_000_000)
    with pytest.raises(InputError, match="1100 x 1000"):
        backend.answer(StudioRequest(Setup(question=QUESTION), image=str(large)))


def test_the_page_settings_are_for_methods_that_have_them() -> None:
    setup = Setup(budget=48, split="weak", after=3)
    assert build_studio_method("mob", setup) == tc.MoB(48, split="weak", after=3)
    assert build_studio_method("mob:after=0", setup) == tc.MoB(48, split="weak", after=0)
    assert build_studio_method("divprune", setup) == tc.DivPrune(48)
    assert build_studio_method("fastv", setup) == tc.FastV(48, after=3)
    assert build_studio_method("fastv", Setup()) == tc.FastV(64)
    assert build_studio_method("mob", Setup()) == tc.MoB(64)


def test_many_visitors_get_the_answers_of_one(desk: StudioModel) -> None:
    image = Image.new("RGB", (192, 192), "white")
    methods = [None, tc.MoB(16), tc.FastV(32), tc.Random(8)]
    alone = [desk.ask(image, QUESTION, method) for method in methods]
    found: dict[int, list[tuple[str, int]]] = {}

    def visit(number: int) -> None:
        mine = methods[number % len(methods)]
        answers = [desk.ask(image, QUESTION, mine) for _ in range(2)]
        found[number] = [
            (each.text, -1 if each.trace is None else len(each.trace.kept)) for each in answers
        ]

    threads = [threading.Thread(target=visit, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, answers in found.items():
        one = alone[number % len(methods)]
        kept = -1 if one.trace is None else len(one.trace.kept)
        assert answers == [(one.text, kept)] * 2
    assert len(found) == 8


def test_times_are_measured_together(desk: StudioModel) -> None:
    """An answer with all tokens is timed again for each question that it is compared with."""
    image = Image.new("RGB", (32, 32))
    first, second = (desk.ask(image, "what is this ?", None) for _ in range(2))
    assert first is not second
    assert first.text == second.text


def test_the_order_of_choice_is_a_moving_picture(backend: StudioBackend) -> None:
    film = backend.play(StudioRequest(Setup(question=QUESTION, budget=16)))
    assert film.startswith("<img")
    with pytest.raises(InputError, match="order of its choice"):
        backend.play(StudioRequest(Setup(question=QUESTION, method="fastv", budget=16)))


@pytest.mark.parametrize(
    ("text", "plain", "right", "verdict"),
    [
        ("Yes.", "no", "yes", "right"),
        ("no", "no", "yes", "wrong"),  # the same as unpruned, and wrong
        ("no", "no", "", "same"),
        ("yes", "no", "", "other"),
        ("yes", "", "", None),
    ],
)
def test_verdict_is_by_reference_answer_if_known(
    text: str, plain: str, right: str, verdict: str | None
) -> None:
    assert judge_answer(text, plain, right) == verdict


def test_bundled_models_do_not_know_uploads(desk: StudioModel) -> None:
    load = {"image": lambda: desk}
    bundled = StudioBackend("pebble", load, max_pixels=100)
    assert "pebble only knows scenes" in bundled.describe_upload(Setup(uploaded=1))
    assert bundled.describe_upload(Setup()) == ""
    assert StudioBackend("other", load, max_pixels=100).describe_upload(Setup(uploaded=1)) == ""


def test_busy_port_is_reported_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InputError) as error:
            validate_port("127.0.0.1", port)
    assert str(error.value) == (
        f"Port {port} of 127.0.0.1 is in use by another program. Choose another one, for example "
        f"--port {port + 1 if port < 65535 else 7860}, or --port 0 for any free port."
    )
    validate_port("127.0.0.1", port)  # it is free again
    assert 0 < get_free_port("127.0.0.1") < 2**16


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host"])
def test_foreign_host_is_reported(host: str) -> None:
    with pytest.raises(InputError, match=f"Cannot listen on --host {host}, port 8000: "):
        validate_port(host, 8000)
