/** Events → view: the one place that knows what a run's events mean. Pure. */

import type { Interrupt, Message, StreamEvent, Values } from "../api/types.ts";
import { amongSummedUp, grow, isTool } from "./messages.ts";
import { reduceTasks } from "./tasks.ts";
import type { View } from "./view.ts";

/** How much of a running tool's output the page keeps. */
const OUTPUT_CHARS = 20_000;

type Fields = Readonly<Record<string, unknown>>;

/** Return the view after `event`. Unknown kinds change nothing but the place to resume from. */
export function reduce(view: View, event: StreamEvent): View {
  const next = apply(view, event.kind, event.data);
  return event.id === undefined || event.id === next.lastEventId ? next : { ...next, lastEventId: event.id };
}

/** Return the view of a thread whose state was read instead of streamed. */
export function withValues(view: View, values: Values): View {
  const next = values.messages ?? [];
  const summary = values.summary_text ?? null;
  const summedUp = summedUpBy(view, next, summary);
  return {
    ...view,
    messages: amongSummedUp(view.messages, next, summedUp),
    summedUp,
    summary,
    partial: view.partial.size === 0 ? view.partial : new Set(),
    title: values.title ?? view.title,
    artifacts: sameList(view.artifacts, values.artifacts ?? []),
    todos: values.todos ?? [],
    waiting: withQuestions(view.waiting, values.__interrupt__),
  };
}

/** Messages that go with a new summary are in it; others that go were taken back, or are back in sight. */
function summedUpBy(view: View, next: readonly Message[], summary: string | null): ReadonlySet<string> {
  const isNew = summary !== null && summary !== "" && summary !== view.summary && view.messages.length > 0;
  if (!isNew && view.summedUp.size === 0) return view.summedUp;
  const present = new Set(next.map((message) => message.id));
  const gone = view.messages.filter((message) => !present.has(message.id) && (isNew || view.summedUp.has(message.id ?? "")));
  const isSame = gone.length === view.summedUp.size && gone.every((message) => view.summedUp.has(message.id ?? ""));
  return isSame ? view.summedUp : new Set(gone.map((message) => message.id ?? ""));
}

function apply(view: View, kind: string, data: unknown): View {
  switch (kind) {
    case "metadata":
      return { ...running(view), runId: stringIn(data, "run_id") ?? view.runId, failure: null, output: {}, waiting: [] };
    case "values":
      return isFields(data) ? withValues({ ...running(view), notice: null }, data as Values) : view;
    case "messages":
      return Array.isArray(data) ? withChunk(running(view), data[0] as Message, data[1] as Fields | undefined) : view;
    case "updates":
      return withTitle(withInterrupts(view, data), data);
    case "custom":
      return isFields(data) ? withCustom(view, data) : view;
    case "error":
      return { ...view, status: "failed", notice: null, failure: failureFrom(data) };
    case "end":
      return ended(view);
    default:
      return view;
  }
}

function running(view: View): View {
  return view.status === "starting" || view.status === "reconnecting" || view.status === "idle"
    ? { ...view, status: "running" }
    : view;
}

function ended(view: View): View {
  const status = view.status === "failed" ? "failed" : view.status === "stopping" ? "stopped" : "idle";
  return { ...view, status, notice: null, partial: new Set() };
}

function withChunk(view: View, chunk: Message, metadata: Fields | undefined): View {
  if (!isFields(chunk) || typeof chunk.id !== "string" || isBackstage(metadata)) return view;
  if (chunk.type === "remove") return without(view, chunk.id);
  const at = view.messages.findLastIndex((message) => message.id === chunk.id);
  // A chunk of a message that is not being put together begins it anew: the stream is being replayed.
  const old = view.partial.has(chunk.id) ? (view.messages[at] ?? null) : null;
  const grown = isTool(chunk) ? chunk : grow(old, chunk);
  const messages = at < 0 ? [...view.messages, grown] : view.messages.with(at, grown);
  const partial = view.partial.has(chunk.id) ? view.partial : new Set([...view.partial, chunk.id]);
  return { ...view, messages, partial, notice: null };
}

/** Return the view without a message: an answer that broke off is being given again. */
function without(view: View, id: string): View {
  const partial = new Set(view.partial);
  partial.delete(id);
  return { ...view, messages: view.messages.filter((message) => message.id !== id), partial };
}

/** A middleware's own model calls (for a title, a summary) are no part of the conversation. */
function isBackstage(metadata: Fields | undefined): boolean {
  const node = metadata?.langgraph_node;
  return typeof node === "string" && node.includes(".");
}

function withTitle(view: View, update: unknown): View {
  if (!isFields(update)) return view;
  const title = Object.values(update).map((part) => stringIn(part, "title")).find((found) => found !== null);
  return title && title !== view.title ? { ...view, title } : view;
}

function withInterrupts(view: View, update: unknown): View {
  const waiting = isFields(update) ? withQuestions(view.waiting, update.__interrupt__) : view.waiting;
  return waiting === view.waiting ? view : { ...view, waiting };
}

/** Return the questions with those that are asked now behind the others, in the order that the server has them in. */
function withQuestions(waiting: readonly Interrupt[], asked: unknown): readonly Interrupt[] {
  const now = Array.isArray(asked) ? (asked as Interrupt[]).filter(isFields) : [];
  const told = new Set(now.map((each) => each.id));
  const next = [...waiting.filter((each) => !told.has(each.id)), ...now];
  return next.every((each, at) => each.id === waiting[at]?.id) ? waiting : next;
}

function withCustom(view: View, event: Fields): View {
  switch (event.type) {
    case "tool_output": {
      const id = stringIn(event, "tool_call_id");
      const text = stringIn(event, "text");
      if (id === null || text === null) return view;
      const printed = ((view.output[id] ?? "") + text).slice(-OUTPUT_CHARS);
      return { ...view, output: { ...view.output, [id]: printed } };
    }
    case "llm_retry":
      return { ...view, notice: stringIn(event, "message") ?? stringIn(event, "reason") };
    default: {
      const tasks = reduceTasks(view.tasks, event);
      return tasks === view.tasks ? view : { ...view, tasks };
    }
  }
}

function failureFrom(data: unknown): View["failure"] {
  if (typeof data === "string") return { name: "error", message: data };
  return {
    name: stringIn(data, "name") ?? stringIn(data, "error") ?? "error",
    message: stringIn(data, "message") ?? "The run failed.",
  };
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function stringIn(value: unknown, key: string): string | null {
  const found = isFields(value) ? value[key] : undefined;
  return typeof found === "string" ? found : null;
}

function sameList(before: readonly string[], next: readonly string[]): readonly string[] {
  return before.length === next.length && before.every((item, index) => item === next[index]) ? before : next;
}

