"""LangChain's own standard tests hold for both transports."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from langchain_tests.unit_tests.chat_models import ChatModelTests
from support.model_server import Reply, Request, ScriptedModel, call, text, usage

from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.models.pool import SessionPool


class UnitTests(ChatModelUnitTests):
    transport: ClassVar[str]

    @property
    def chat_model_class(self) -> type[CompatibleChatOpenAI]:
        return CompatibleChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "gpt-4o", "api_key": "k", "transport": self.transport}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        env = {"OPENAI_API_KEY": "api_key", "OPENAI_API_BASE": "https://base.com"}
        expected = {"openai_api_key": "api_key", "openai_api_base": "https://base.com"}
        return env, {"model": "gpt-4o", "transport": self.transport}, expected


class TestLeanUnits(UnitTests):
    transport = "lean"


class TestSdkUnits(UnitTests):
    transport = "sdk"


def obliging(request: Request) -> Reply:
    """Call the tool that was asked for, or answer in the form that was asked for."""
    form = request.body.get("response_format")
    if form:
        schema = form.get("json_schema", {}).get("schema", {"properties": {"joke": {"type": "string"}}})
        return text(json.dumps(example(schema))) + usage(20, 10)
    tools = request.body.get("tools")
    if tools and request.messages[-1]["role"] == "user":
        function = tools[0]["function"]
        return call(function["name"], **example(function.get("parameters", {}))) + usage(20, 10)
    return text("Hello, this is an answer of some length. ") + usage(20, 10)


def example(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """Return a value that fits the schema."""
    known = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return example(known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], known)
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "integer" | "number":
            return 3
        case "string":
            return "你好 こんにちは & <b>"
        case "boolean":
            return True
        case "array":
            return [example(schema.get("items", {"type": "string"}), known)]
    return {key: example(value, known) for key, value in schema.get("properties", {}).items()}


# LangChain's adapter dumps the SDK's parsed chunks in a way that pydantic warns about.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
class IntegrationTests(ChatModelTests):
    """Those standard tests that a scripted server can answer for."""

    transport: ClassVar[str]

    test_invoke = ChatModelIntegrationTests.test_invoke
    test_ainvoke = ChatModelIntegrationTests.test_ainvoke
    test_stream = ChatModelIntegrationTests.test_stream
    test_astream = ChatModelIntegrationTests.test_astream
    test_stream_events_v3 = ChatModelIntegrationTests.test_stream_events_v3
    test_astream_events_v3 = ChatModelIntegrationTests.test_astream_events_v3
    test_ainvoke_with_model_override = ChatModelIntegrationTests.test_ainvoke_with_model_override
    test_astream_with_model_override = ChatModelIntegrationTests.test_astream_with_model_override
    test_abatch = ChatModelIntegrationTests.test_abatch
    test_conversation = ChatModelIntegrationTests.test_conversation
    test_double_messages_conversation = ChatModelIntegrationTests.test_double_messages_conversation
    test_usage_metadata = ChatModelIntegrationTests.test_usage_metadata
    test_usage_metadata_streaming = ChatModelIntegrationTests.test_usage_metadata_streaming
    test_tool_calling = ChatModelIntegrationTests.test_tool_calling
    test_tool_calling_async = ChatModelIntegrationTests.test_tool_calling_async
    test_tool_message_histories_string_content = (
        ChatModelIntegrationTests.test_tool_message_histories_string_content
    )
    test_tool_message_histories_list_content = (
        ChatModelIntegrationTests.test_tool_message_histories_list_content
    )
    test_tool_choice = ChatModelIntegrationTests.test_tool_choice
    test_tool_calling_with_no_arguments = ChatModelIntegrationTests.test_tool_calling_with_no_arguments
    test_tool_message_error_status = ChatModelIntegrationTests.test_tool_message_error_status
    test_structured_few_shot_examples = ChatModelIntegrationTests.test_structured_few_shot_examples
    test_structured_output = ChatModelIntegrationTests.test_structured_output
    test_structured_output_async = ChatModelIntegrationTests.test_structured_output_async
    test_structured_output_optional_param = ChatModelIntegrationTests.test_structured_output_optional_param
    test_message_with_name = ChatModelIntegrationTests.test_message_with_name
    test_agent_loop = ChatModelIntegrationTests.test_agent_loop
    test_unicode_tool_call_integration = ChatModelIntegrationTests.test_unicode_tool_call_integration

    @pytest.fixture
    def server(self) -> Iterator[ScriptedModel]:
        with ScriptedModel() as server:
            server.on(lambda request: True, obliging)
            yield server

    @pytest.fixture
    def model(
        self,
        request: pytest.FixtureRequest,
        server: ScriptedModel,
        pool: SessionPool,
        sdk_clients: dict[str, Any],
    ) -> CompatibleChatOpenAI:
        given = {**self.standard_chat_model_params, **getattr(request, "param", {}), **sdk_clients}
        return CompatibleChatOpenAI(
            model="gpt-4o",
            api_key="k",
            base_url=server.base_url,
            transport=self.transport,
            pool=pool,
            stream_usage=True,
            **given,
        )

    @property
    def chat_model_class(self) -> type[CompatibleChatOpenAI]:
        return CompatibleChatOpenAI

    @property
    def model_override_value(self) -> str:
        return "gpt-4o-mini"


class TestLean(IntegrationTests):
    transport = "lean"


class TestSdk(IntegrationTests):
    transport = "sdk"
