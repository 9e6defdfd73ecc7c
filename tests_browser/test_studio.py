"""The studio, used as a visitor uses it."""

from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from gradio_client import Client
from PIL import Image
from playwright.sync_api import Page, expect
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tests_browser.conftest import PHONE
from tokencover.studio import StudioSettings, open_studio
from tokencover_models.pebble import PICTURE_CHECKPOINT

FIELD = "#picture"
UPLOAD = f"{FIELD} input[type=file]"
FIRST, SECOND = "#first-facts .tc-answer", "#second-facts .tc-answer"


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(FIRST)


def read_row(page: Page, name: str, side: str = FIRST) -> str:
    """What the facts say beside a name."""
    return (
        page.locator(f"{side} tr", has=page.locator(f"th:text-is('{name}')"))
        .locator("td")
        .inner_text()
    )


def wait_for_row(page: Page, name: str, text: str | re.Pattern[str], side: str = FIRST) -> None:
    row = page.locator(f"{side} tr", has=page.locator(f"th:text-is('{name}')")).locator("td")
    expect(row).to_have_text(text)


def test_a_first_visit_shows_an_answer(page: Page, studio: str) -> None:
    open_page(page, studio)
    wait_for_row(page, "tokens kept", "64 of 576")
    assert page.locator("#first-kept rect").count() == 64
    assert read_row(page, "answer")


def test_the_budget_moves(page: Page, studio: str) -> None:
    open_page(page, studio)
    slider = page.locator("#budget input[type=range]")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("PageUp")
    page.mouse.click(5, 5)
    number = page.locator("#budget input[type=number]")
    number.fill("32")
    number.press("Enter")
    page.locator("#ask").click()
    wait_for_row(page, "tokens kept", "32 of 576")
    assert page.locator("#first-kept rect").count() == 32


def test_two_methods_side_by_side_by_link(page: Page, studio: str) -> None:
    open_page(page, f"{studio}?question=where+is+the+red+star+%3F&other=fastv&budget=48&scene=2")
    wait_for_row(page, "tokens kept", "48 of 576", SECOND)
    assert page.locator(f"{SECOND} h3").inner_text() == "fastv"
    query = parse_qs(urlparse(page.url).query)
    assert query["other"] == ["fastv"]
    assert query["budget"] == ["48"]


def test_the_method_is_switched(page: Page, studio: str) -> None:
    open_page(page, studio)
    fill_method(page, "divprune")
    page.locator("#ask").click()
    expect(page.locator(f"{FIRST} h3")).to_have_text("divprune")
    page.wait_for_url(re.compile("method=divprune"))
    assert page.locator("#first-kept rect").count() == 64


def test_a_fresh_scene_is_asked_about_at_once(page: Page, studio: str) -> None:
    open_page(page, studio)
    before = page.locator("#first-kept image").first.get_attribute("href") or ""
    page.locator("#fresh").click()
    expect(page.locator("#first-kept image").first).not_to_have_attribute("href", before)
    page.wait_for_url(re.compile("scene="))
    assert read_row(page, "right")


def test_split_and_layer_move(page: Page, studio: str) -> None:
    open_page(page, f"{studio}?split=strong&after=3")
    wait_for_row(page, "split", re.compile("up to 24 for the question"))
    layers = page.locator(f"{FIRST} .tc-layers").get_attribute("aria-label")
    assert layers == "tokens per block: " + ", ".join(["576"] * 3 + ["64"] * 8)


def write_picture(folder: Path, name: str = "own.png") -> Path:
    path = folder / name
    Image.effect_noise((96, 64), 50).convert("RGB").save(path)
    return path


def fill_method(page: Page, name: str) -> None:
    page.locator("#method input").fill(name)
    page.locator("#method input").press("Enter")


def test_answer_is_right_or_wrong_by_reference(page: Page, studio: str) -> None:
    open_page(page, studio)
    right = read_row(page, "right")
    for name in ("answer", "with all tokens"):
        cell = page.locator(f"{FIRST} tr", has=page.locator(f"th:text-is('{name}')")).locator("td")
        expected = "right" if cell.inner_text() == right else "wrong"
        assert cell.get_attribute("data-verdict") == expected
    green = page.locator(f"{FIRST} td[data-verdict=right]").first
    assert green.evaluate("(each) => getComputedStyle(each).color") == "rgb(21, 128, 61)"
    assert green.evaluate("(each) => getComputedStyle(each, '::after').content") == '"right"'
    legend = page.locator(".tc-key").last.inner_text()
    assert all(word in legend for word in ("right", "wrong", "same as unpruned", "differs from"))


def test_answer_without_reference_is_compared_with_unpruned(page: Page, studio: str) -> None:
    open_page(page, f"{studio}?question=is+a+blue+star+there+%3F")
    verdict = page.locator(f"{FIRST} td[data-verdict]").first.get_attribute("data-verdict")
    same = read_row(page, "answer") == read_row(page, "with all tokens")
    assert verdict == ("same" if same else "other")
    assert page.locator(f"{FIRST} td[data-verdict]").count() == 1


def test_error_is_shown_once_and_results_are_cleared(page: Page, studio: str) -> None:
    open_page(page, studio)
    page.locator("#play").click()
    page.wait_for_selector("#film img")
    fill_method(page, "nonsense")
    expect(page.get_by_test_id("toast-text")).to_have_count(1)
    expect(page.get_by_test_id("toast-text")).to_contain_text("there is no method 'nonsense'")
    for part in ("#first-kept svg", "#first-facts .tc-answer", "#film img"):
        expect(page.locator(part)).to_have_count(0)
    expect(page.locator("#link textarea, #link input").first).to_have_value("")
    expect(page.get_by_text("Error", exact=True).filter(visible=True)).to_have_count(1)


def test_failed_upload_is_reported_once(page: Page, studio: str, tmp_path: Path) -> None:
    path = tmp_path / "text.png"
    path.write_bytes(b"this is not an image")
    open_page(page, studio)
    page.locator(UPLOAD).set_input_files(path)
    expect(page.get_by_test_id("toast-text")).to_have_count(1)
    expect(page.locator("#first-kept svg")).to_have_count(0)


def test_edited_question_clears_answer_but_not_image(page: Page, studio: str) -> None:
    open_page(page, studio)
    field = page.locator("#question textarea, #question input").first
    field.press("End")
    field.press_sequentially(" now")
    expect(page.locator(FIRST)).to_have_count(0)
    expect(page.locator("#first-kept rect")).to_have_count(0)
    expect(page.locator("#first-kept image")).to_have_count(1)
    field.press("Enter")
    wait_for_row(page, "tokens kept", "64 of 576")
    assert page.locator("#first-kept rect").count() == 64


def test_questions_of_scene_are_listed_and_asked(page: Page, studio: str) -> None:
    open_page(page, studio)
    field = page.locator("#question textarea, #question input").first
    asked = page.locator("#asked input")
    expect(asked).to_have_value(field.input_value())
    asked.click()
    options = page.locator("[role=option]")
    assert options.count() >= 5
    page.keyboard.press("Escape")  # without a choice nothing is asked
    page.mouse.click(5, 5)
    expect(options).to_have_count(0)
    assert page.get_by_test_id("toast-text").count() == 0
    assert field.input_value()
    asked.click()
    expect(options).to_have_count(14)
    text = options.nth(3).inner_text().strip("✓ \n")
    options.nth(3).click()
    expect(field).to_have_value(text)
    page.wait_for_url(re.compile("question="))
    wait_for_row(page, "tokens kept", "64 of 576")


def test_upload_is_neither_known_nor_in_link(page: Page, studio: str, tmp_path: Path) -> None:
    open_page(page, studio)
    assert page.locator("#notice").inner_text().strip() == ""
    page.locator(UPLOAD).set_input_files(write_picture(tmp_path))
    expect(page.locator("#notice")).to_contain_text("pebble knows only the scenes")
    expect(page.locator("#link")).to_contain_text("your file is not in it")
    expect(page.locator("#asked")).to_be_hidden()
    page.wait_for_url(re.compile("uploaded=1"))
    page.goto(page.url)
    page.wait_for_selector(FIRST)
    expect(page.locator("#opened")).to_contain_text("which is not in it")
    expect(page.locator("#asked")).to_be_visible()
    page.locator("#fresh").click()
    expect(page.locator("#opened")).not_to_contain_text("uploaded")


def test_removed_upload_brings_scene_back(page: Page, studio: str, tmp_path: Path) -> None:
    open_page(page, studio)
    before = page.locator("#first-kept image").first.get_attribute("href") or ""
    page.locator(UPLOAD).set_input_files(write_picture(tmp_path))
    expect(page.locator("#notice")).to_contain_text("pebble knows only the scenes")
    page.locator(f"{FIELD} button[aria-label='Remove Image']").click()
    expect(page.locator("#first-kept image").first).to_have_attribute("href", before)
    expect(page.locator("#notice")).not_to_contain_text("pebble")


def test_results_come_before_controls_on_phone(page: Page, studio: str) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    open_page(page, studio)
    tops = [page.locator(name).bounding_box() for name in ("#first-kept", "#question")]
    assert tops[0] is not None
    assert tops[1] is not None
    assert tops[0]["y"] < tops[1]["y"]


def test_a_link_with_nonsense_still_opens(page: Page, studio: str) -> None:
    open_page(page, f"{studio}?budget=-5&scene=x&medium=film")
    wait_for_row(page, "tokens kept", "64 of 576")


def test_questions_with_markup_stay_text(page: Page, studio: str) -> None:
    alerts: list[str] = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    bad = "<script>alert(1)</script><img src=x onerror=alert(2)>${alert(3)} \"'"
    open_page(page, studio)
    page.locator("#question textarea, #question input").first.fill(bad)
    page.locator("#ask").click()
    page.wait_for_url(re.compile("onerror"))
    page.goto(page.url)  # and so does a link with it
    page.wait_for_selector(FIRST)
    assert page.locator("#question textarea, #question input").first.input_value() == bad
    page.locator("#other input").fill("<img src=x onerror=alert(4)>")
    page.locator("#other input").press("Enter")
    expect(page.locator(".toast-body").first).to_contain_text("<img src=x onerror=alert(4)>")
    assert alerts == []
    assert page.locator("#first-facts script, #first-facts img[src=x]").count() == 0


def make_bad_files() -> dict[str, bytes]:
    """Files that are not images, or that are too large."""
    picture = Image.effect_noise((64, 64), 50).convert("RGB")
    jpeg, bomb = io.BytesIO(), io.BytesIO()
    picture.save(jpeg, "JPEG")
    Image.new("1", (30_000, 30_000)).save(bomb, "PNG")
    return {
        "text.png": b"this is not an image",
        "bomb.png": bomb.getvalue(),
        "truncated.jpg": jpeg.getvalue()[: len(jpeg.getvalue()) // 2],
        "empty.png": b"",
        "heavy.png": b"x" * 3_000_000,
    }


TOLD = {
    "text.png": "PNG, JPEG",
    "bomb.png": "too large",
    "truncated.jpg": "cut off",
    "empty.png": "empty",
    "heavy.png": "size",
}


def make_odd_files() -> dict[str, bytes]:
    """Images of unusual kinds, which must be shown."""
    files: dict[str, bytes] = {}
    picture = Image.effect_noise((96, 64), 50).convert("RGB")

    def keep(name: str, image: Image.Image, kind: str, **options: object) -> None:
        file = io.BytesIO()
        image.save(file, kind, **options)  # type: ignore[arg-type]
        files[name] = file.getvalue()

    keep("cmyk.jpg", picture.convert("CMYK"), "JPEG")
    keep("deep.png", Image.new("I;16", (64, 64), 40_000), "PNG")
    keep("animated.gif", picture, "GIF", save_all=True, append_images=[picture.rotate(90)])
    exif = Image.Exif()
    exif[0x0112] = 6
    keep("turned.jpg", picture, "JPEG", exif=exif)
    return files


@pytest.mark.parametrize("name", TOLD)
def test_bad_uploads_are_told(page: Page, studio: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(make_bad_files()[name])
    open_page(page, studio)
    page.locator(UPLOAD).set_input_files(path)
    expect(page.locator(".toast-body").first).to_contain_text(TOLD[name])
    page.locator("#fresh").click()  # and all goes on
    page.wait_for_url(re.compile("scene="))
    wait_for_row(page, "tokens kept", "64 of 576")


@pytest.mark.parametrize("name", make_odd_files())
def test_unusual_pictures_are_shown(page: Page, studio: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(make_odd_files()[name])
    open_page(page, studio)
    before = page.locator("#first-kept image").first.get_attribute("href")
    page.locator(UPLOAD).set_input_files(path)
    expect(page.locator("#first-kept image").first).not_to_have_attribute("href", before or "")
    wait_for_row(page, "tokens kept", "64 of 576")


def test_files_can_be_downloaded(page: Page, studio: str, tmp_path: Path) -> None:
    open_page(page, studio)
    with page.expect_download() as told:
        page.locator("#json-file").click()
    facts = json.loads(Path(told.value.path()).read_text())
    assert facts["model"] == "pebble"
    assert len(facts["answers"][0]["trace"]["kept"]) == 64
    with page.expect_download() as drawn:
        page.locator("#picture-file").click()
    with Image.open(drawn.value.path()) as sheet:
        assert sheet.width > 400


def test_the_order_of_choice_is_played(page: Page, studio: str) -> None:
    open_page(page, studio)
    page.locator("#play").click()
    source = page.locator("#film img").get_attribute("src")
    assert source is not None
    assert source.startswith("data:image/gif")


def test_a_clip_can_be_asked_about(page: Page, studio: str) -> None:
    open_page(page, f"{studio}?medium=clip&question=which+place+is+this+%3F&budget=136")
    wait_for_row(page, "tokens kept", "136 of 1160")


def test_a_phone_needs_no_sideways_scrolling(page: Page, studio: str) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    open_page(page, studio)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE["width"]
    for told in page.locator(".tc-key span, .tc-answer td, .tc-layers").all():  # nor is it cut off
        box = told.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]


def test_a_model_for_clips_alone(page: Page) -> None:
    told: list[str] = []
    opened = open_studio(
        StudioSettings(model="pebble-clips", port=0), tell_address=told.append, wait=False
    )
    open_page(page, f"{told[0]}?budget=700")  # more than the slider has before anything is known
    wait_for_row(page, "tokens kept", "700 of 1160")
    assert "medium=clip" in page.url
    opened.close()


def test_a_model_with_fewer_tokens_than_the_usual_budget(page: Page, tmp_path: Path) -> None:
    save_small_llava(tmp_path / "small")
    told: list[str] = []
    settings = StudioSettings(model=str(tmp_path / "small"), port=0, longest_answer=2)
    opened = open_studio(settings, tell_address=told.append, wait=False)
    open_page(page, told[0])
    wait_for_row(page, "tokens kept", "16 of 16")
    page.locator("#ask").click()
    number = page.locator("#budget input[type=number]")
    number.fill("6")
    number.press("Enter")
    page.locator("#ask").click()
    wait_for_row(page, "tokens kept", "6 of 16")
    opened.close()


def save_small_llava(folder: Path) -> None:
    """A LLaVA with 16 visual tokens and 14 blocks, random, in a folder with a stock processor."""
    words = PreTrainedTokenizerFast.from_pretrained(PICTURE_CHECKPOINT)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    vision = CLIPVisionConfig(**size, num_hidden_layers=2, image_size=56, patch_size=14)
    text = LlamaConfig(**size, num_hidden_layers=14, vocab_size=len(words))
    image = words.convert_tokens_to_ids("<image>")
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image)
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    pictures = CLIPImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    template = (PICTURE_CHECKPOINT / "chat_template.jinja").read_text()
    LlavaProcessor(
        pictures,
        words,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=template,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def test_many_visitors_lose_nothing(studio: str) -> None:
    """Fifty questions from ten visitors at once give the answers of one visitor alone."""
    values = [
        "is there a yellow star ?",
        "picture",
        0,
        "mob",
        "(none)",
        64,
        "paper",
        -1,
        None,
        None,
    ]
    budgets = (16, 32, 64, 96, 128)

    def ask(client: Client, budget: int) -> str:
        asked = [*values]
        asked[5] = budget
        facts: str = client.predict(*asked, api_name="/ask")[1]
        return re.sub(r"<td>\d+ % of unpruned \([^)]*\)</td>", "", facts)

    alone = {budget: ask(Client(studio, verbose=False), budget) for budget in budgets}
    found: list[tuple[int, str]] = []

    def visit() -> None:
        client = Client(studio, verbose=False)
        found.extend([(budget, ask(client, budget)) for budget in budgets])

    visitors = [threading.Thread(target=visit) for _ in range(10)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert len(found) == 50
    assert all(facts == alone[budget] for budget, facts in found)
