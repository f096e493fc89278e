"""The reducers of a thread's state."""

from deerflow.agents.state import UploadedFile, keep_latest, merge_artifacts, merge_images, merge_uploads


def upload(name: str, message: str, size: int = 1) -> UploadedFile:
    return UploadedFile(filename=name, path=f"/mnt/user-data/uploads/{name}", size=size, message_id=message)


def test_artifacts_keep_their_order_and_appear_once() -> None:
    assert merge_artifacts(["a", "b"], ["b", "c", "a"]) == ["a", "b", "c"]
    assert merge_artifacts(None, ["a", "a"]) == ["a"]
    assert merge_artifacts(["a"], None) == ["a"]


def test_images_merge_until_an_empty_mapping_clears_them() -> None:
    one = {"a": {"base64": "x", "mime_type": "image/png"}}
    two = {"b": {"base64": "y", "mime_type": "image/png"}}

    assert merge_images(one, two) == {**one, **two}  # type: ignore[arg-type]
    assert merge_images(one, {}) == {}  # type: ignore[arg-type]
    assert merge_images(one, None) == one  # type: ignore[arg-type]


def test_uploads_appear_once_per_message_with_the_latest_size() -> None:
    known = [upload("a", "m1"), upload("b", "m1")]

    merged = merge_uploads(known, [upload("a", "m1", 5), upload("a", "m2")])

    assert merged == [upload("a", "m1", 5), upload("b", "m1"), upload("a", "m2")]


def test_nothing_said_changes_nothing() -> None:
    assert keep_latest("title", None) == "title"
    assert keep_latest("title", "") == ""
    assert keep_latest(None, "new") == "new"
