"""Preset zlib dictionary of the text that most rows share.

Most rows are a few hundred bytes of which two thirds are the same names. zlib replaces text of a
preset dictionary by references; a compressed row carries the dictionary's checksum.
A released dictionary is never edited: rows refer to it. A better one is added beside it.
"""

import zlib

# Later entries are cheaper to refer to, so the most frequent ones stand at the end.
_FIRST = b"".join(
    (
        # run requests
        b'{"thread_id":"","user_id":"default","assistant_id":"lead_agent","input":{"messages":[{"type":"human",',
        b'"role":"user","content":[{"type":"text","text":""}],"id":""}]},"command":null,"options":{"model_name":',
        b'null,"mode":null,"thinking_enabled":true,"reasoning_effort":null,"is_plan_mode":false,',
        b'"subagent_enabled":false,"max_concurrent_subagents":3,"max_total_subagents":null,"agent_name":null,',
        b'"is_bootstrap":false},"context":{},"metadata":{},"stream_modes":["values","messages-tuple","updates",',
        b'"custom"],"stream_subgraphs":false,"on_disconnect":"cancel","multitask_strategy":"reject",',
        b'"checkpoint_id":null,"recursion_limit":100,"interrupt_before":[],"interrupt_after":[],',
        b'"is_interactive":true}',
        # events and their fragments
        b'"langgraph_step":,"langgraph_node":"model","langgraph_triggers":["branch:to:model"],"langgraph_path":',
        b'["__pregel_pull","model"],"langgraph_checkpoint_ns":"model:","checkpoint_ns":"","ls_provider":"openai",',
        b'"ls_model_name":"","ls_model_type":"chat","ls_temperature":null,"lc_agent_name":"',
        b'{"title":"","thread_data":{"workspace_path":"/mnt/user-data/workspace","uploads_path":',
        b'"/mnt/user-data/uploads","outputs_path":"/mnt/user-data/outputs"},"sandbox":{"sandbox_id":"local"},',
        b'"artifacts":[],"todos":[],"uploaded_files":[],"viewed_images":{},"run_id":"","attempt":1}',
        b'"type":"tool","name":"bash","tool_call_id":"call_","artifact":null,"status":"success"}',
        b'"tool_calls":[{"name":"","args":{},"id":"call_","type":"tool_call"}],"invalid_tool_calls":[],',
        b'"usage_metadata":{"input_tokens":,"output_tokens":,"total_tokens":},"tool_call_chunks":[],',
        b'"chunk_position":null}"messages","values","custom","metadata","updates","end"',
        b'{"content":"","additional_kwargs":{},"response_metadata":{"finish_reason":"stop","model_name":"",',
        b'"model_provider":"openai"},"type":"AIMessageChunk","name":null,"id":"lc_run--","type":"human","type":"ai"',
        # writes
        b"\xa9__error__\xad__interrupt__\xae__pregel_tasks\xa5tools\xbclangchain_core.messages.tool\xabToolMessage",
        b"\xaetool_call_id\xd9\xa8artifact\xc0\xa6status\xa7success\xa4tool\xa9tool_call\xa4args\x81\xa7command",
        b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3",
        b"model_validate_json\x91\x93\x00\xa8messages\xc5\x01\x91\x91\xc7\x05\x94\xbdlangchain_core.messages.human",
        b"\xacHumanMessage\x86\xa7content\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xd9",
        b"\xb1additional_kwargs\x80\xb1response_metadata\x83\xadfinish_reason\xa4stop\xaamodel_name\xaemodel_provider",
        b"\xa6openai\xa4type\xa2ai\xa4name\xc0\xa2id\xd9,lc_run--\xaatool_calls\x90\xb2invalid_tool_calls\x90",
        b"\xaeusage_metadata\x85\xacinput_tokens\xadoutput_tokens\xactotal_tokens\xb3input_token_details\x80",
        b"\xb4output_token_details\x80\xb3model_validate_json",
        # checkpoints
        b"\xa7sandbox\xabthread_data\x83\xaeworkspace_path\xb9/mnt/user-data/workspace\xacuploads_path",
        b"\xb7/mnt/user-data/uploads\xacoutputs_path\xb7/mnt/user-data/outputs\xa9artifacts\x90\xa5todos",
        b"\xaeuploaded_files\xadviewed_images\xadls_integration\xb6langchain_create_agent\xadlc_agent_name",
        b"\x91\x98\x86\xa6source\xa5input\xa4loop\xa4step\xa7parents\x80\xbdcounters_since_delta_snapshot\x81",
        b"\xa8messages\x92\xa6run_id\xd9$\xa7user_id\xa7default\x04\xd9 2026-11-15T12:00:00.000000+00:00",
        b"\xa5title\xa9__start__\xa8messages\xafbranch:to:tools\xafbranch:to:model\x84\xa9__input__\x80",
        b"\xa9__start__\x81\xa9__start__\xa5model\x81\xafbranch:to:model",
    )
)

DICTIONARIES: dict[int, bytes] = {zlib.adler32(words): words for words in (_FIRST,)}
"""All dictionaries by the checksum that compressed rows carry."""
NEWEST = _FIRST
