/** View → what is drawn, from top to bottom: messages, steps, tasks, questions, files. Pure. */

import type { HumanInputRequest, HumanInputResponse, Message, ToolCall } from "../api/types.ts";
import { isAi, isFailureNote, isHuman, isTool, reasoningOf, textOf } from "./messages.ts";
import { taskFromResult } from "./tasks.ts";
import { isBusy, type Task, type View } from "./view.ts";

export type StepStatus = "running" | "waiting" | "done" | "failed" | "stopped";

type OpenStatus = "running" | "waiting" | "stopped";

/** One tool call and what came of it. */
export interface Step {
  readonly key: string;
  readonly call: ToolCall;
  readonly result: Message | null;
  readonly output: string;
  readonly status: StepStatus;
}

/** How an answer ended that did not come to its end. */
export type Ended = "stopped" | "failed";

export type Item =
  | { readonly kind: "said"; readonly key: string; readonly message: Message }
  | { readonly kind: "answer"; readonly key: string; readonly message: Message; readonly isPartial: boolean; readonly ended: Ended | null }
  | { readonly kind: "steps"; readonly key: string; readonly steps: readonly Step[] }
  | { readonly kind: "tasks"; readonly key: string; readonly tasks: readonly Task[] }
  | { readonly kind: "files"; readonly key: string; readonly paths: readonly string[] }
  | { readonly kind: "summary"; readonly key: string; readonly text: string }
  | {
      readonly kind: "question";
      readonly key: string;
      readonly request: HumanInputRequest;
      readonly answer: HumanInputResponse | null;
      readonly isOpen: boolean;
    };

/** Return how many of these steps failed. */
export function failuresIn(steps: readonly Step[]): number {
  return steps.filter((step) => step.status === "failed").length;
}

/** Return the items of a view, in the order in which they happened. */
export function itemsOf(view: View): readonly Item[] {
  const results = new Map(view.messages.filter(isTool).map((message) => [message.tool_call_id, message]));
  const answers = answersIn(view.messages);
  const items: Item[] = [];
  const lastSaid = view.messages.findLastIndex(isHuman);
  const lastSummedUp = view.messages.findLastIndex((message) => view.summedUp.has(message.id ?? ""));
  view.messages.forEach((message, index) => {
    if (isHuman(message)) {
      if (!message.additional_kwargs?.hide_from_ui) items.push({ kind: "said", key: keyOf(message, index), message });
    } else if (isAi(message) && !message.additional_kwargs?.hide_from_ui) {
      addAnswer(items, view, message, index);
      for (const [at, call] of (message.tool_calls ?? []).entries()) {
        const open = openStatus(view, index > lastSaid);
        addCall(items, view, call, `${keyOf(message, index)}/${call.id ?? at}`, results.get(call.id ?? ""), open);
      }
    } else if (isTool(message) && !message.additional_kwargs?.approval_card) {
      addQuestion(items, view, message, index, answers);
    }
    if (index === lastSummedUp) items.push({ kind: "summary", key: "summary", text: view.summary ?? "" });
  });
  return items;
}

/** How a call without a result stands: a thread that has stopped at a question goes on with the answer. */
function openStatus(view: View, isLatest: boolean): OpenStatus {
  if (isBusy(view)) return "running";
  return isLatest && view.waiting.length > 0 ? "waiting" : "stopped";
}

function addAnswer(items: Item[], view: View, message: Message, index: number): void {
  if (textOf(message).trim() === "" && reasoningOf(message) === "") return;
  const isPartial = message.id !== null && view.partial.has(message.id) && isBusy(view);
  items.push({ kind: "answer", key: keyOf(message, index), message, isPartial, ended: endedOf(message) });
}

function endedOf(message: Message): Ended | null {
  const ended = message.additional_kwargs?.ended;
  const isMarked = ended === "stopped" || (ended === "failed" && !isFailureNote(message)); // which says so itself
  return isMarked ? ended : null;
}

function addCall(items: Item[], view: View, call: ToolCall, key: string, result: Message | undefined, open: OpenStatus): void {
  if (call.name === "ask_clarification" && result?.artifact?.human_input) return; // its question is drawn instead
  if (call.name === "task") {
    push(items, "tasks", key, taskOf(view, call, result, open));
  } else if (call.name === "present_files" && result && result.status !== "error") {
    const paths = pathsIn(call);
    if (paths.length > 0) items.push({ kind: "files", key, paths });
  } else {
    push(items, "steps", key, stepOf(view, call, key, result, open));
  }
}

function addQuestion(
  items: Item[],
  view: View,
  message: Message,
  index: number,
  answers: ReadonlyMap<string, HumanInputResponse>,
): void {
  const request = message.artifact?.human_input;
  if (!request || typeof request.question !== "string") return;
  const answer = answers.get(request.request_id) ?? null;
  const isLast = !view.messages.slice(index + 1).some(isHuman);
  items.push({ kind: "question", key: keyOf(message, index), request, answer, isOpen: answer === null && isLast });
}

/** Neighbouring steps (and tasks) share one block. */
function push(items: Item[], kind: "steps" | "tasks", key: string, entry: Step | Task): void {
  const last = items.at(-1);
  if (last?.kind === "steps" && kind === "steps") items[items.length - 1] = { ...last, steps: [...last.steps, entry as Step] };
  else if (last?.kind === "tasks" && kind === "tasks") items[items.length - 1] = { ...last, tasks: [...last.tasks, entry as Task] };
  else if (kind === "steps") items.push({ kind, key, steps: [entry as Step] });
  else items.push({ kind, key, tasks: [entry as Task] });
}

function stepOf(view: View, call: ToolCall, key: string, result: Message | undefined, open: OpenStatus): Step {
  const status: StepStatus = result ? (result.status === "error" ? "failed" : "done") : open;
  return { key, call, result: result ?? null, output: call.id ? (view.output[call.id] ?? "") : "", status };
}

function taskOf(view: View, call: ToolCall, result: Message | undefined, open: OpenStatus): Task {
  const description = typeof call.args.description === "string" ? call.args.description : "";
  const live = call.id ? view.tasks[call.id] : undefined;
  const told = result ? taskFromResult(call.id ?? "", description, result) : undefined;
  const task = live ?? told ?? waiting(call, description);
  const status = told && task.status === "running" ? told.status : task.status;
  return {
    ...task,
    description: task.description || description,
    status: status === "running" && open !== "running" ? (open === "waiting" ? "waiting" : "cancelled") : status,
    result: task.result ?? told?.result ?? null,
  };
}

function waiting(call: ToolCall, description: string): Task {
  return { id: call.id ?? "", description, status: "running", steps: [], result: null, model: null, tokens: null };
}

function answersIn(messages: readonly Message[]): ReadonlyMap<string, HumanInputResponse> {
  const responses = messages.flatMap((message) => message.additional_kwargs?.human_input_response ?? []);
  return new Map(responses.map((response) => [response.request_id, response]));
}

function pathsIn(call: ToolCall): string[] {
  const named = call.args.filepaths ?? call.args.paths ?? call.args.files;
  return Array.isArray(named) ? named.filter((path): path is string => typeof path === "string") : [];
}

function keyOf(message: Message, index: number): string {
  return message.id ?? `at-${index}`;
}
