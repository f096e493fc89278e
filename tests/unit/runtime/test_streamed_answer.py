"""Of several tries of one model call, the stream keeps one."""

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from deerflow.runtime.graph_stream import StreamedAnswer

MODEL = {"langgraph_node": "model"}


def piece(message_id: str, *, is_last: bool = False) -> AIMessageChunk:
    return AIMessageChunk("word", id=message_id, chunk_position="last" if is_last else None)


def withdrawn(streamed: StreamedAnswer, message: BaseMessage) -> str | None:
    removed = streamed.take(message, MODEL)
    return removed.id if removed else None


def test_a_new_try_withdraws_the_one_that_broke_off() -> None:
    streamed = StreamedAnswer()

    found = [withdrawn(streamed, piece("a"))]
    streamed.retry()
    found += [withdrawn(streamed, piece(each)) for each in ("a", "b", "b")]

    assert found == [None, None, "a", None], "also where the last pieces come after the news of the retry"


def test_a_fallback_withdraws_what_the_model_before_it_had_said() -> None:
    streamed = StreamedAnswer()
    withdrawn(streamed, piece("call"))

    assert withdrawn(streamed, piece("call-fallback1")) == "call"
    assert withdrawn(streamed, AIMessage("whole", id="call-fallback1-0")) == "call-fallback1"


def test_whole_answers_and_other_nodes_stay() -> None:
    streamed = StreamedAnswer()
    streamed.retry()

    assert withdrawn(streamed, piece("a")) is None
    assert streamed.take(piece("title"), {"langgraph_node": "TitleMiddleware.after"}) is None
    assert withdrawn(streamed, piece("a", is_last=True)) is None
    assert withdrawn(streamed, piece("b")) is None, "an answer that came to its end is no failed try"
    streamed.settle()
    assert withdrawn(streamed, piece("c")) is None
