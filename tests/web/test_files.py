"""Files go in and come out through the browser."""

from support.gateway import Gateway
from support.model_server import ScriptedModel, call, calls, text
from web.browser import Browser
from web.line import Line

NOTES = "# Notes\n\nAlpha is simple.\n\nBeta is fast.\n"
REPORT = "# Report\n\nAlpha is simple [citation:notes.md](/mnt/user-data/uploads/notes.md#L3).\n"


def test_files_come_in_by_button_drop_and_paste(page: Browser, model: ScriptedModel) -> None:
    # An answer about uploads that were not read is asked for again, in the middle of the next test.
    reads = call("read_file", description="Look", path="/mnt/user-data/uploads/notes.md")
    model.will_say(reads, text("All is read."))
    page.do("attach", files=[{"name": "notes.md", "content": NOTES}])
    page.sees("notes.md")
    page.do("drop", files=[{"name": "dropped.txt", "content": "dropped"}])
    page.sees("dropped.txt")
    page.do("paste", files=[{"name": "pasted.txt", "content": "pasted"}])
    page.sees("pasted.txt")
    page.do("see", target={"css": "progress"}, state="detached")

    page.click("Remove dropped.txt")
    page.say("Read these.")

    page.sees("All is read.")
    page.waits_until_idle()
    asked = model.requests[-1].asked
    assert "/mnt/user-data/uploads/notes.md" in asked
    assert "pasted.txt" in asked
    assert "dropped.txt" not in asked


def test_too_many_and_empty_files_are_refused_with_a_reason(page: Browser) -> None:
    page.do("attach", files=[{"name": "empty.txt", "content": ""}])
    page.sees("empty.txt is empty")

    page.do("attach", files=[{"name": f"{number}.txt", "content": "x"} for number in range(12)])

    page.sees("At most 10 files")


def test_a_file_that_cannot_be_sent_says_why_in_the_persons_language(page: Browser, gateway: Gateway) -> None:
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url, locale="zh-CN")
        page.sees("想完成什么任务？")
        line.cut()

        page.do("attach", files=[{"name": "notes.md", "content": NOTES}])

        page.waits_for("form [role=alert]:has-text('无法连接服务器')")
        line.mend()


def test_an_artifact_opens_and_its_citation_leads_to_the_line(page: Browser, model: ScriptedModel) -> None:
    model.will_say(
        call("write_file", description="Write it", path="/mnt/user-data/outputs/report.md", content=REPORT),
        call("present_files", filepaths=["/mnt/user-data/outputs/report.md"]),
        text("See [the report](/mnt/user-data/outputs/report.md)."),
    )
    page.do("attach", files=[{"name": "notes.md", "content": NOTES}])
    page.say("Report.")
    page.sees("the report")

    page.click("Open report.md", nth=0)

    page.waits_for("aside h3:has-text('Report')")
    page.click("notes.md", role="link", within={"css": "aside"})
    page.waits_for("aside [aria-current=location]:has-text('Alpha is simple.')")
    page.do("press", target={"css": "body"}, key="Escape")
    page.do("see", target={"css": "aside"}, state="detached")
    page.click("Artifacts 1")
    page.waits_for("aside li:has-text('report.md')")


def test_several_artifacts_come_in_one_zip(page: Browser, model: ScriptedModel) -> None:
    paths = [f"/mnt/user-data/outputs/{name}.md" for name in ("one", "two")]
    model.will_say(
        calls(
            *(call("write_file", description="Write it", path=path, content="# A file\n") for path in paths)
        ),
        call("present_files", filepaths=paths),
        text("Both are there."),
    )
    page.say("Write two.")
    page.sees("Both are there.")

    page.click("Artifacts 2")
    page.waits_for("aside a:has-text('Download all')")
    address = page.do("attribute", target={"css": "aside a:has-text('Download all')"}, name="href")

    got = page.evaluate(f"fetch('{address}').then((sent) => [sent.status, sent.headers.get('content-type')])")
    assert got == [200, "application/zip"]


def test_an_html_artifact_is_shown_without_scripts_or_network(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    html = (
        "<!doctype html><style>h1{color:red}</style><h1>Chart</h1><script>top.hacked = 1</script>"
        '<img src="https://evil.example/p.png"><meta http-equiv="refresh" content="0;url=https://evil.example">'
    )
    path = "/mnt/user-data/outputs/chart.html"
    model.will_say(
        call("write_file", description="Draw", path=path, content=html),
        call("present_files", filepaths=[path]),
        text("Drawn."),
    )
    page.say("Draw a chart.")
    page.sees("Drawn.")

    page.click("Open chart.html", nth=0)

    page.waits_for("aside iframe")
    page.sees("Scripts and remote content are off")
    assert page.evaluate("window.hacked === undefined")
    rights = page.do("attribute", target={"css": "aside iframe"}, name="sandbox")
    assert rights == "allow-popups allow-popups-to-escape-sandbox"
