/** Sub-agents: custom events in, the state of each task out. */

import type { Message, TaskRow } from "../api/types.ts";
import { isTool, textOf } from "./messages.ts";
import type { Task, TaskStatus, TaskStep } from "./view.ts";

/** How many steps of one task the page keeps; a long task does not fill the memory of the tab. */
const STEPS_KEPT = 200;
const STEP_CHARS = 600;

type Tasks = Readonly<Record<string, Task>>;

const ENDINGS: Readonly<Record<string, TaskStatus>> = {
  task_completed: "completed",
  task_failed: "failed",
  task_cancelled: "cancelled",
  task_timed_out: "timed_out",
};

/** Return `tasks` after a custom event; the same object when the event is not about a task. */
export function reduceTasks(tasks: Tasks, event: Readonly<Record<string, unknown>>): Tasks {
  const id = event.task_id;
  if (typeof id !== "string" || typeof event.type !== "string") return tasks;
  const old = tasks[id] ?? newTask(id);
  const task = nextTask(old, event.type, event);
  return task === null ? tasks : { ...tasks, [id]: task };
}

/** Return `tasks` with those of a run that has ended, as its log tells them; what is known already stays. */
export function recallTasks(tasks: Tasks, rows: readonly TaskRow[]): Tasks {
  return rows.reduce((known, row) => (row.task_id in known ? known : eventsOf(row).reduce(reduceTasks, known)), tasks);
}

/** Tell whether a message asks for sub-agents that `tasks` knows nothing of. */
export function asksForOthers(tasks: Tasks, message: Message): boolean {
  return (message.tool_calls ?? []).some((call) => call.name === "task" && call.id && !(call.id in tasks));
}

/** Return the state of a task as its `task` tool result tells it, for runs whose events are not at hand. */
export function taskFromResult(id: string, description: string, result: Message): Task {
  const extras = result.additional_kwargs ?? {};
  return {
    ...newTask(id),
    description,
    status: statusFrom(extras.subagent_status, result),
    result: extras.subagent_error ?? textOf(result),
    model: extras.subagent_model_name ?? null,
  };
}

/** A row as the events it was made of. */
function eventsOf(row: TaskRow): Readonly<Record<string, unknown>>[] {
  const { task_id, description, model_name, usage } = row;
  const steps = (row.steps ?? []).map((step) => ({ type: "task_running", task_id, message: step.message, message_index: step.index }));
  return [
    { type: "task_started", task_id, description, model_name },
    ...steps,
    { type: `task_${row.status}`, task_id, usage, result: row.result, error: row.error },
  ];
}

function newTask(id: string): Task {
  return { id, description: "", status: "running", steps: [], result: null, model: null, tokens: null };
}

function nextTask(old: Task, type: string, event: Readonly<Record<string, unknown>>): Task | null {
  const ending = ENDINGS[type];
  if (ending) {
    const said = ending === "completed" ? event.result : (event.error ?? event.result);
    return { ...known(old, event), status: ending, result: said === null || said === undefined ? old.result : String(said) };
  }
  if (type === "task_started") return { ...known(old, event), status: "running" };
  if (type === "task_running") return { ...known(old, event), steps: withSteps(old.steps, event) };
  return null;
}

function known(old: Task, event: Readonly<Record<string, unknown>>): Task {
  const usage = event.usage as { total_tokens?: number } | null | undefined;
  return {
    ...old,
    description: typeof event.description === "string" ? event.description : old.description,
    model: typeof event.model_name === "string" ? event.model_name : old.model,
    tokens: usage?.total_tokens ?? old.tokens,
  };
}

function withSteps(steps: readonly TaskStep[], event: Readonly<Record<string, unknown>>): readonly TaskStep[] {
  const message = event.message as Message | undefined;
  if (typeof message !== "object" || message === null) return steps;
  const index = typeof event.message_index === "number" ? event.message_index : steps.length + 1;
  const others = steps.filter((step) => step.index !== index); // a replayed step takes its own place again
  return [...others, ...stepsOf(message, index)].sort((a, b) => a.index - b.index).slice(-STEPS_KEPT);
}

function stepsOf(message: Message, index: number): TaskStep[] {
  const text = textOf(message).trim().slice(0, STEP_CHARS);
  if (isTool(message)) {
    return [{ index, kind: "result", text: `${message.name ?? "tool"}: ${text}`, isFailed: message.status === "error" }];
  }
  const calls = (message.tool_calls ?? []).map((call): TaskStep => {
    const about = call.args.description ?? call.args.path ?? call.args.query ?? call.args.pattern ?? call.args.command ?? call.args.url;
    return { index, kind: "tool", text: about === undefined ? call.name : `${call.name}: ${String(about).slice(0, STEP_CHARS)}` };
  });
  return text ? [{ index, kind: "text", text }, ...calls] : calls;
}

function statusFrom(status: string | undefined, result: Message): TaskStatus {
  if (status === "completed" || status === "failed" || status === "cancelled" || status === "timed_out") return status;
  if (status === "polling_timed_out") return "timed_out";
  return result.status === "error" ? "failed" : "completed";
}
