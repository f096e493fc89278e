import orjson

from deerflow.domain import RunOptions, RunRequest, TokenUse
from deerflow.storage.requests import dump_request, dump_usage, load_request, load_usage


def test_fields_of_a_newer_version_are_left_out() -> None:
    data = orjson.loads(dump_request(RunRequest("t1", input={"messages": []})))
    data["from_the_future"] = {"x": 1}
    data["options"]["also_new"] = True

    assert load_request(orjson.dumps(data)) == RunRequest("t1", input={"messages": []})


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    assert load_request(b'{"thread_id":"t1","options":{"mode":"pro"}}') == RunRequest(
        "t1", options=RunOptions(mode="pro")
    )


def test_token_use_comes_back() -> None:
    use = TokenUse(input_tokens=1, output_tokens=2, subagent_tokens=3)

    assert load_usage(dump_usage(use)) == use
    assert load_usage(None) == TokenUse()
    assert load_usage('{"input_tokens":5,"new":1}') == TokenUse(input_tokens=5)
