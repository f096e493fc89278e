from deerflow.models.offline.findings import (
    CitedSentence,
    Research,
    Source,
    citation,
    cited,
    from_text,
    labels_for,
    parse_cited,
    to_text,
)
from deerflow.models.offline.sentences import Fragment

PATH = "/mnt/user-data/uploads/notes.md"


def test_a_citation_names_the_file_and_leads_to_the_line() -> None:
    assert citation(PATH, 12) == "[citation:notes.md:12](/mnt/user-data/uploads/notes.md#L12)"


def test_odd_file_names_survive_the_way_there_and_back() -> None:
    for name in ("a b (1).md", "笔记.md", "100%#[x].md", "q?|`\\.md"):
        found = CitedSentence(
            f"/mnt/user-data/uploads/{name}", "Cost", (Fragment(3, "It costs (about) [five] 5 €."),)
        )

        assert parse_cited(cited(found), aspect="Cost") == found


def test_research_survives_the_way_from_sub_agent_to_lead() -> None:
    research = Research(
        (
            CitedSentence(PATH, "Cost", (Fragment(1, "One line"), Fragment(2, "and the next."))),
            CitedSentence(PATH, "Speed", (Fragment(9, "Cut off"),), cut=True),
        ),
        (
            Source(PATH, "full", "20 lines"),
            Source("/mnt/x y.bin", "failed", "it is binary — not text"),
            Source("/mnt/e.md", "empty"),
            Source("/mnt/big.log", "part", "only 5 lines"),
        ),
    )

    for language in ("en", "zh"):
        assert from_text(to_text(research, aspects=["Cost", "Speed", "Risk"], language=language)) == research


def test_an_answer_of_another_model_is_read_as_far_as_it_is_cited() -> None:
    text = f"I found this.\n\n### Cost\n- It is cheap. {citation(PATH, 4)}\n- No proof."

    assert from_text(text).findings == (CitedSentence(PATH, "Cost", (Fragment(4, "It is cheap."),)),)


def test_a_shortened_claim_says_that_it_goes_on() -> None:
    found = CitedSentence(
        PATH, "", (Fragment(1, "a long sentence that goes on and on"), Fragment(2, "and on"))
    )

    assert cited(found, limit=16) == f"a long sentence … {citation(PATH, 1)}"


def test_files_of_the_same_name_get_labels_that_tell_them_apart() -> None:
    assert labels_for(["/m/a/x.md", "/m/b/x.md", "/m/y.md"]) == {
        "/m/a/x.md": "a/x.md",
        "/m/b/x.md": "b/x.md",
        "/m/y.md": "y.md",
    }
