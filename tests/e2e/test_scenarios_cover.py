"""Every middleware and every tool has its scenario over HTTP: one without one fails here, by name."""

import ast
import re
from importlib import import_module
from pathlib import Path

import deerflow
from deerflow.agents.middlewares import ChainMiddleware
from deerflow.lead import LeadAgents

HERE = Path(__file__).parent
PACKAGE = Path(deerflow.__file__).parent
MADE = re.compile(r"\btool_of\(\s*(?:\"(\w+)\"|([A-Z_]+))")

MIDDLEWARES = """
ActiveSkills active_skills tools_outside_of_the_allowed_ones_are_refused
Background subagents a_background_task_lets_the_lead_go_on_and_its_turn_ends_with_the_result
CallLimit lead_calls calls_beyond_the_limit_wait_for_a_place
Clarification scenarios_tools a_question_ends_the_turn_alone_and_the_answer_goes_on
CutOff middlewares cut_answers_say_so_and_cut_calls_do_not_run
DanglingToolCall scenarios_middlewares a_call_without_a_result_is_answered_for_the_model_only
DeferredTools mcp deferred_tools_are_named_searched_for_and_then_stay
Effects effects a_command_that_had_begun_is_not_repeated_and_the_model_is_told
EmptyAnswer middlewares an_empty_answer_is_asked_for_again
FailureNote unfinished_answers the_note_of_a_failed_answer_goes_once_its_question_is_answered
Goal goals the_agent_goes_on_until_the_goal_is_met
Guardrail approvals an_approved_command_runs_and_only_then
Inbox scenarios_tools background_tasks_are_seen_steered_and_read
InputSanitizing middlewares forged_tags_are_words_for_the_model_and_whole_for_the_user
LoopDetection middlewares a_loop_of_identical_calls_is_warned_of_then_stopped
MalformedCall scenarios_middlewares arguments_that_are_no_json_are_sent_back_and_nothing_runs
Memory memory what_is_said_in_one_thread_is_known_in_the_next
McpRouting mcp words_of_the_user_point_to_tools_and_load_them
ModelError middlewares a_failed_call_is_tried_again_and_the_client_is_told
ModelSettings custom_agents a_run_has_the_agents_soul_tools_and_manner
ModelTelemetry observability numbers_tell_of_runs_models_tools_and_sub_agents
ParallelCalls lead_calls an_answers_calls_run_a_few_at_a_time
ReadBeforeWrite middlewares a_file_must_be_read_before_it_is_overwritten
ReadyTools scenarios_middlewares tools_are_described_whole_and_the_same_way_every_time
Reminder middlewares the_date_comes_before_the_first_question_and_the_prefix_stays
SafetyStop middlewares a_safety_stop_drops_calls_and_says_why
SubagentLimit subagents five_platforms_go_in_two_batches_and_a_reply_with_five_calls_is_cut_to_three
Summarization middlewares a_long_conversation_gets_a_summary_that_stays
TeamRequest teams a_run_that_begins_with_a_team_asks_no_model_whether_to
Title scenarios_middlewares a_model_of_its_own_writes_the_title_and_nobody_hears_it
Todo middlewares plans_are_for_plan_mode_and_have_one_item_in_progress
TokenBudget middlewares a_token_budget_warns_then_ends_the_run_with_what_was_done
ToolError scenarios_middlewares a_tool_that_breaks_is_news_for_the_model_and_not_the_end
ToolOffer scenarios_middlewares only_what_this_run_can_use_is_offered
ToolOutputBudget middlewares a_long_result_goes_to_a_file_that_can_be_read
ToolProgress lead_calls an_agent_whose_results_stop_being_new_is_told_so
ToolResultLabel middlewares results_are_framed_for_the_model_and_plain_for_the_client
ToolTelemetry observability numbers_tell_of_runs_models_tools_and_sub_agents
TurnStart scenarios_middlewares a_turn_starts_with_folders_and_a_title
Uploads scenarios_middlewares uploads_are_named_to_the_model_with_the_message_they_came_with
ViewImage scenarios_tools an_image_is_shown_to_the_model_once_and_kept_out_of_the_conversation
"""
"""A class without `Middleware`, the file and the test, both without `test_`."""

TOOLS = """
ask_clarification scenarios_tools a_question_ends_the_turn_alone_and_the_answer_goes_on
bash scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
edit_files lead_tools edits_need_the_files_to_be_read_and_are_made_together
find_skill skill_discovery many_skills_are_named_in_the_prompt_and_found_by_search
glob scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
grep scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
image_search web a_run_searches_reads_a_page_and_finds_words_in_its_file
invoke_acp_agent acp the_lead_hands_work_to_an_agent_and_reads_what_it_left
ls scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
memory_add memory in_tool_mode_the_model_looks_after_the_memory_itself
memory_delete memory in_tool_mode_the_model_looks_after_the_memory_itself
memory_search memory in_tool_mode_the_model_looks_after_the_memory_itself
memory_update memory in_tool_mode_the_model_looks_after_the_memory_itself
present_files scenarios_tools present_files_shows_them_to_the_client
python scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
read_file scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
run_team scenarios_tools members_of_a_team_share_what_they_find
search_files scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
setup_agent lead_own_agents an_agent_is_made_in_conversation_and_there_at_once
share_finding scenarios_tools members_of_a_team_share_what_they_find
skill_manage skill_evolution a_skill_is_created_used_patched_and_rolled_back
str_replace scenarios_tools str_replace_edits_a_file_that_was_read
task runs sub_agents_work_in_parallel_and_report
task_cancel scenarios_tools a_background_task_is_stopped_by_its_lead
task_message scenarios_tools background_tasks_are_seen_steered_and_read
task_result scenarios_tools background_tasks_are_seen_steered_and_read
task_status scenarios_tools background_tasks_are_seen_steered_and_read
team_findings scenarios_tools members_of_a_team_share_what_they_find
tool_search mcp deferred_tools_are_named_searched_for_and_then_stay
update_agent lead_own_agents an_agent_changes_itself_and_keeps_the_rest
view_image scenarios_tools an_image_is_shown_to_the_model_once_and_kept_out_of_the_conversation
web_fetch web a_run_searches_reads_a_page_and_finds_words_in_its_file
web_search web a_run_searches_reads_a_page_and_finds_words_in_its_file
write_file scenarios_tools a_call_comes_back_to_the_model_framed_and_to_the_client_plain
write_todos middlewares plans_are_for_plan_mode_and_have_one_item_in_progress
"""


def rows(table: str) -> dict[str, tuple[str, str]]:
    """Return file and test by name."""
    parts = [line.split() for line in table.strip().splitlines()]
    return {name: (f"test_{file}.py", f"test_{test}") for name, file, test in parts}


def kinds(cls: type = ChainMiddleware) -> set[str]:
    """Return all middlewares that the lead agent's room brings in, without the part that all names share."""
    below = [each for each in cls.__subclasses__() if each.__module__.startswith(f"{deerflow.__name__}.")]
    return {each.__name__.removesuffix("Middleware") for each in below}.union(*map(kinds, below))


def tools() -> set[str]:
    """Return the names of all tools that are made anywhere in the package."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        found = MADE.findall(path.read_text())
        if found and path.name != "define.py":
            module = import_module(".".join(("deerflow", *path.relative_to(PACKAGE).with_suffix("").parts)))
            names |= {name or str(getattr(module, constant)) for name, constant in found}
    return names


def names_in(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_middleware_has_a_scenario() -> None:
    assert LeadAgents, "its room is loaded, and with it all there are"
    assert kinds() == set(rows(MIDDLEWARES))


def test_every_tool_has_a_scenario() -> None:
    assert tools() == set(rows(TOOLS))


def test_every_scenario_that_is_named_is_there() -> None:
    named = {*rows(MIDDLEWARES).values(), *rows(TOOLS).values()}

    assert [(file, test) for file, test in named if test not in names_in(file)] == []
